import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

/** A code block of a page: a file to write, or commands to run. */
export interface Block {
  language: string
  /** After the language: the name of the file, or `background`. */
  about: string
  text: string
}

const BLOCK = /^```(\w+)(?: +(\S+))?\n([\s\S]*?)^```$/gm

export const pageOf = (name: string): Promise<string> =>
  readFile(join(import.meta.dirname, '../../docs', `${name}.md`), 'utf8')

export async function blocksOf(name: string): Promise<Block[]> {
  const page = await pageOf(name)
  return [...page.matchAll(BLOCK)].map(([, language = '', about = '', text = '']) => ({ language, about, text }))
}
