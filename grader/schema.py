"""The gradebook's tables, one entry a schema version, oldest first.

A released entry is never edited; a change is a new entry. Columns of points hold an int, or a real number
where lateness or a person made a fraction of it.
"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        """CREATE TABLE attempts (
            key TEXT PRIMARY KEY, lab TEXT NOT NULL, seed TEXT NOT NULL, versions TEXT NOT NULL,
            finished TEXT NOT NULL, seconds REAL NOT NULL, message TEXT NOT NULL, output TEXT NOT NULL)""",
        """CREATE TABLE verdicts (
            attempt TEXT NOT NULL REFERENCES attempts(key) ON DELETE CASCADE, position INTEGER NOT NULL,
            test TEXT NOT NULL, verdict TEXT NOT NULL, message TEXT NOT NULL, seconds REAL NOT NULL,
            mistake TEXT, PRIMARY KEY (attempt, position))""",
        """CREATE TABLE marks (
            student TEXT NOT NULL, lab TEXT NOT NULL, attempt TEXT NOT NULL REFERENCES attempts(key),
            points INTEGER NOT NULL, max_points INTEGER NOT NULL, message TEXT NOT NULL,
            PRIMARY KEY (student, lab))""",
        """CREATE TABLE step_marks (
            student TEXT NOT NULL, lab TEXT NOT NULL, step INTEGER NOT NULL, title TEXT NOT NULL,
            points INTEGER, max_points INTEGER NOT NULL, PRIMARY KEY (student, lab, step),
            FOREIGN KEY (student, lab) REFERENCES marks(student, lab) ON DELETE CASCADE)""",
    ),
    (
        "ALTER TABLE attempts ADD COLUMN layers TEXT NOT NULL DEFAULT ''",  # of the jail, one a line
        "ALTER TABLE attempts ADD COLUMN source BLOB",  # zlib; NULL: no file, or older than this column
        "ALTER TABLE attempts ADD COLUMN runs INTEGER NOT NULL DEFAULT 1",  # how often it was run to the end
        "ALTER TABLE verdicts ADD COLUMN compared TEXT NOT NULL DEFAULT ''",  # by the check that decided
        "ALTER TABLE marks ADD COLUMN source_hash TEXT",  # '': no file; NULL: older than this column
        "ALTER TABLE marks ADD COLUMN note TEXT NOT NULL DEFAULT ''",  # on the hand-in and its run
        "ALTER TABLE marks ADD COLUMN withheld INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE marks ADD COLUMN late_days INTEGER",  # NULL: not late
        "ALTER TABLE marks ADD COLUMN late_percent REAL",
        "ALTER TABLE marks ADD COLUMN late_note TEXT",
        "ALTER TABLE marks ADD COLUMN marked TEXT NOT NULL DEFAULT ''",  # when
        """CREATE TABLE findings (
            student TEXT NOT NULL, lab TEXT NOT NULL, position INTEGER NOT NULL, step INTEGER NOT NULL,
            rule TEXT NOT NULL, line INTEGER NOT NULL, text TEXT NOT NULL, undecided INTEGER NOT NULL,
            PRIMARY KEY (student, lab, position),
            FOREIGN KEY (student, lab) REFERENCES marks(student, lab) ON DELETE CASCADE)""",
        # Decisions are only added to: the latest counts, the others stay for the record.
        """CREATE TABLE reviews (
            id INTEGER PRIMARY KEY, student TEXT NOT NULL, lab TEXT NOT NULL, step INTEGER NOT NULL,
            source_hash TEXT NOT NULL, accepted INTEGER NOT NULL, reason TEXT NOT NULL,
            who TEXT NOT NULL, decided TEXT NOT NULL)""",
        "CREATE INDEX reviews_of ON reviews(student, lab, source_hash)",
        """CREATE TABLE overrides (
            id INTEGER PRIMARY KEY, student TEXT NOT NULL, lab TEXT NOT NULL, step INTEGER, points REAL,
            reason TEXT NOT NULL, who TEXT NOT NULL, decided TEXT NOT NULL)""",
        "CREATE INDEX overrides_of ON overrides(student, lab)",
        """CREATE TABLE history (
            id INTEGER PRIMARY KEY, student TEXT NOT NULL, lab TEXT NOT NULL, attempt TEXT NOT NULL,
            points INTEGER NOT NULL, max_points INTEGER NOT NULL, message TEXT NOT NULL, steps TEXT NOT NULL,
            marked TEXT NOT NULL, replaced TEXT NOT NULL, lowered INTEGER NOT NULL)""",
    ),
    (
        # 1: of an earlier run, and no longer in the class
        "ALTER TABLE marks ADD COLUMN gone INTEGER NOT NULL DEFAULT 0",
        # of the findings that it decides; NULL: all of the step
        "ALTER TABLE reviews ADD COLUMN line INTEGER",
    ),
)
