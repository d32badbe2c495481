/**
 * The changes that reached a run while it ran. A note is one change of its key; a pass sees the changes that were noted
 * before it began. A run that takes notes reads again before it ends, under the same record, instead of being followed
 * by another run. Changes that no pass has seen must be queued.
 */
export interface Passes<Note> {
  /** True from the beginning of the first pass until the run ends. */
  open: boolean
  /** The notes that came after the present pass had begun. */
  unseen: readonly Note[]
  /** The notes that are safe once the run's end is stored. */
  seen: readonly Note[]
}

export const passes = {
  /** The state of a run that takes no notes yet, because it may never read again. */
  none: { open: false, unseen: [], seen: [] },

  /** Begins the first or a further pass. Call before reading anything. */
  begin: <Note>({ unseen, seen }: Passes<Note>): Passes<Note> => ({
    open: true,
    unseen: [],
    seen: unseen.length === 0 ? seen : [...seen, ...unseen],
  }),

  /** Adds a note. Undefined: the run does not read again. */
  note: <Note>(present: Passes<Note>, note: Note): Passes<Note> | undefined =>
    present.open ? { ...present, unseen: [...present.unseen, note] } : undefined,

  /** Removes a note. Undefined: too late, because a pass has seen it. */
  withdraw: <Note>(present: Passes<Note>, note: Note): Passes<Note> | undefined =>
    present.unseen.includes(note)
      ? { ...present, unseen: present.unseen.filter((other) => other !== note) }
      : undefined,

  /** Ends the passes: from here on, the run reads nothing. */
  close: <Note>(present: Passes<Note>): Passes<Note> => ({ ...present, open: false }),

  /**
   * Divides the notes into safe changes and changes that must be queued. `stored`: the run's end, or a token instead of
   * it, is stored.
   */
  divide: <Note>(
    { seen, unseen }: Passes<Note>,
    stored: boolean,
  ): { safe: readonly Note[]; unsafe: readonly Note[] } =>
    stored ? { safe: seen, unsafe: unseen } : { safe: [], unsafe: [...seen, ...unseen] },
}
