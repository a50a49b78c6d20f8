-- `cause`: the event or the alert as bytes, so that a notification is shown as it was told. `alert`: its message may come twice.
CREATE TABLE notifications (
    part int8 NOT NULL, id int8 NOT NULL, account int8 NOT NULL, kind int8 NOT NULL, time int8 NOT NULL,
    alert int8, cause bytea,
    PRIMARY KEY (part, id)
);
CREATE INDEX notifications_account ON notifications (account, id);
CREATE UNIQUE INDEX notifications_alert ON notifications (alert) WHERE alert IS NOT NULL;
-- Of each partition the last number, and how many fills were ever told in it: old notifications go, these stay.
CREATE TABLE heads (part int8 PRIMARY KEY, id int8 NOT NULL, fills int8 NOT NULL);
