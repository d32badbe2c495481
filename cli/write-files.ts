import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

/** Writes files, by their paths below a folder, and returns where they are. */
export const writeFiles = (to: string, files: ReadonlyMap<string, string>): Promise<string[]> =>
  Promise.all(
    [...files].map(async ([path, text]) => {
      const file = join(to, path)
      await mkdir(dirname(file), { recursive: true })
      await writeFile(file, text)
      return file
    }),
  )
