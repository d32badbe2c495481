import { readFile } from 'node:fs/promises'
import { extname } from 'node:path'
import { TextlintKernel, type TextlintKernelPlugin, type TextlintMessage } from '@textlint/kernel'
import markdown from '@textlint/textlint-plugin-markdown'
import { codeDocument } from './code.ts'
import { RULES } from './rules.ts'
import { yamlDocument } from './yaml.ts'

export interface Finding {
  file: string
  line: number
  column: number
  pattern: string
  /** `text`, `heading`, `comment` or `message`. */
  kind: string
  /** What was found, and what to write in its place. */
  message: string
}

type Plugin = TextlintKernelPlugin['plugin']

const pluginFor = (extensions: string[], preProcess: (text: string, path: string) => unknown) =>
  ({
    Processor: class {
      availableExtensions = () => extensions
      processor = () => ({
        preProcess,
        postProcess: (messages: TextlintMessage[], filePath: string) => ({ messages, filePath }),
      })
    },
  }) as unknown as Plugin

const PLUGINS: TextlintKernelPlugin[] = [
  // A CommonJS module, whose types name its default export only.
  { pluginId: 'markdown', plugin: ((markdown as { default?: unknown }).default ?? markdown) as Plugin },
  { pluginId: 'code', plugin: pluginFor(['.ts', '.js'], codeDocument) },
  { pluginId: 'yaml', plugin: pluginFor(['.yaml'], yamlDocument) },
]

const kernel = new TextlintKernel()

/** The findings of one file, in its order. The extension of its name decides how its text is read. */
export async function lintText(text: string, file: string): Promise<Finding[]> {
  const options = { ext: extname(file), filePath: file, plugins: PLUGINS, rules: RULES }
  const { messages } = await kernel.lintText(text, options)
  return messages
    .map(({ ruleId: pattern, loc, message }) => ({
      file,
      ...loc.start,
      pattern,
      kind: message.split(' ')[0] ?? '',
      message,
    }))
    .filter(({ kind }) => kind !== 'message' || !file.startsWith('test/'))
}

export async function lintFiles(files: readonly string[]): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const file of files) findings.push(...(await lintText(await readFile(file, 'utf8'), file)))
  return findings
}
