// Asking for the operator's token. What is typed stays in memory.

import { h } from '../shell/dom.ts';
import { words } from '../shell/words.ts';
import { labelled, openDialog } from './dialogs.ts';

/** The token, or null when the dialog was closed without one. `fault` says what was wrong with the one before. */
export function askToken(fault: string): Promise<string | null> {
  const input = h('input', {
    type: 'password',
    name: 'operator-token',
    autocomplete: 'off',
    required: true,
    // What a header can carry.
    pattern: '\\s*[!-~]+\\s*',
    spellcheck: 'false',
  });
  const form = h(
    'form',
    { class: 'stack' },
    labelled('operator-token', words.operatorToken, input),
    h('p', { class: 'fault', role: 'alert' }, fault),
    h('button', { type: 'submit', class: 'primary wide' }, words.goOn),
  );
  const dialog = openDialog(words.operatorOnly, h('p', { class: 'dim' }, words.operatorHint), form);
  input.focus();
  return new Promise(resolve => {
    let token: string | null = null;
    form.addEventListener('submit', event => {
      event.preventDefault();
      token = input.value.trim();
      dialog.close();
    });
    dialog.addEventListener('close', () => resolve(token));
  });
}
