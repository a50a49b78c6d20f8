-- `cause`: the event or the alert as bytes, so that a notification is shown as it was told. `alert`: its message may come twice.
CREATE TABLE notifications (
    part INTEGER NOT NULL, id INTEGER NOT NULL, account INTEGER NOT NULL, kind INTEGER NOT NULL, time INTEGER NOT NULL,
    alert INTEGER, cause BLOB,
    PRIMARY KEY (part, id)
) WITHOUT ROWID;
CREATE INDEX notifications_account ON notifications (account, id);
CREATE UNIQUE INDEX notifications_alert ON notifications (alert) WHERE alert IS NOT NULL;
-- Of each partition the last number, and how many fills were ever told in it: old notifications go, these stay.
CREATE TABLE heads (part INTEGER PRIMARY KEY, id INTEGER NOT NULL, fills INTEGER NOT NULL);
