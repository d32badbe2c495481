import { type FSWatcher, statSync, watch } from 'node:fs'
import { dirname } from 'node:path'

/** The time until a change counts as complete: an editor writes a file in several steps, or replaces it. */
const SETTLES_MS = 100

/** Reports when one of the files is written, replaced or deleted. */
export class WatchedFiles implements Disposable {
  readonly #files = new Map<string, number>()
  readonly #folders = new Map<string, FSWatcher>()
  readonly #onChange: (file: string) => void
  #settling: NodeJS.Timeout | undefined

  constructor(onChange: (file: string) => void) {
    this.#onChange = onChange
  }

  add(file: string): void {
    if (this.#files.has(file)) return
    this.#files.set(file, modifiedAt(file))
    const folder = dirname(file)
    // Watches the folder, since a replaced file is a new inode.
    if (!this.#folders.has(folder))
      this.#folders.set(
        folder,
        watch(folder, () => this.#look()),
      )
  }

  #look(): void {
    clearTimeout(this.#settling)
    this.#settling = setTimeout(() => {
      const changed = [...this.#files].filter(([file, at]) => modifiedAt(file) !== at).map(([file]) => file)
      for (const file of changed) this.#files.set(file, modifiedAt(file))
      if (changed[0] !== undefined) this.#onChange(changed[0])
    }, SETTLES_MS)
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#settling)
    for (const watcher of this.#folders.values()) watcher.close()
  }
}

const modifiedAt = (file: string): number => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0
