import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

/** A code block of the tutorial: a file to write, or commands to run. */
export interface Block {
  language: string
  /** After the language: the name of the file, or `background`. */
  about: string
  text: string
}

const BLOCK = /^```(\w+)(?: +(\S+))?\n([\s\S]*?)^```$/gm

export async function tutorialBlocks(): Promise<Block[]> {
  const page = await readFile(join(import.meta.dirname, '../../docs/tutorial.md'), 'utf8')
  return [...page.matchAll(BLOCK)].map(([, language = '', about = '', text = '']) => ({ language, about, text }))
}
