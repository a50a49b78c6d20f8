/** A list of listeners for one kind of event. */
export class Signal<T = void> {
  private listeners: ((value: T) => void)[] = [];

  /** Calls `listener` each time, until what is given back is called. */
  on(listener: (value: T) => void): () => void {
    this.listeners.push(listener);
    return () => {
      this.listeners = this.listeners.filter(one => one !== listener);
    };
  }

  emit(value: T): void {
    for (const listener of this.listeners) listener(value);
  }
}

/** Calls `draw` once in the next animation frame, however often it is asked before: a burst of messages costs one drawing. */
export function oncePerFrame(draw: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}
