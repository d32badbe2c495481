/** Thrown for a snapshot that is incomplete, or not the intended one. */
export class SnapshotError extends Error {
  override readonly name = 'SnapshotError'
}
