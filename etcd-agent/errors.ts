/** A snapshot that is not whole, or not the one that is meant. */
export class SnapshotError extends Error {
  override readonly name = 'SnapshotError'
}
