/**
 * What reached a run while it ran. A note is one change of its key; a pass sees the changes that were noted before it
 * began. A run that takes notes reads again before it ends, under the same record, instead of being followed by another
 * run; what it then has not read, somebody else has to queue.
 */
export interface Passes<Note> {
  /** From the first pass until the run ends. */
  open: boolean
  /** Came after the present pass had begun. */
  unseen: readonly Note[]
  /** Safe once the run's end is stored. */
  seen: readonly Note[]
}

export const passes = {
  /** Of a run that takes no notes yet: it may be one that never looks again. */
  none: { open: false, unseen: [], seen: [] },

  /** The first, or another one: call before anything is read. */
  begin: <Note>({ unseen, seen }: Passes<Note>): Passes<Note> => ({
    open: true,
    unseen: [],
    seen: unseen.length === 0 ? seen : [...seen, ...unseen],
  }),

  /** Undefined: it will not be read any more. */
  note: <Note>(present: Passes<Note>, note: Note): Passes<Note> | undefined =>
    present.open ? { ...present, unseen: [...present.unseen, note] } : undefined,

  /** Undefined: it is too late to take it back, a pass has seen it. */
  withdraw: <Note>(present: Passes<Note>, note: Note): Passes<Note> | undefined =>
    present.unseen.includes(note)
      ? { ...present, unseen: present.unseen.filter((other) => other !== note) }
      : undefined,

  /** The run ends: from here on nothing is read. */
  close: <Note>(present: Passes<Note>): Passes<Note> => ({ ...present, open: false }),

  /** Whose changes are safe, and which have to be queued. `stored`: the run's end is, or a token in its place. */
  divide: <Note>(
    { seen, unseen }: Passes<Note>,
    stored: boolean,
  ): { safe: readonly Note[]; unsafe: readonly Note[] } =>
    stored ? { safe: seen, unsafe: unseen } : { safe: [], unsafe: [...seen, ...unseen] },
}
