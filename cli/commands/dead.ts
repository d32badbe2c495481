import { CODES, type DeadLetter, type DeadLetters, keyIn } from '#events'
import { type DeadFilter, type ReplayTools, replay, selectLetters, textOf, withExistingStreams } from '#inspect'
import { duration, EXIT, oneLine, table, UsageError } from '#process/exit'
import type { CommandContext } from '../options.ts'

export const ls = (options: DeadLsOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ dead }) => context.print(await listDead(dead, options, new Date())))

export const show = (id: number, output: 'text' | 'json', context: CommandContext): Promise<void> =>
  withExistingStreams(context, async (tools) =>
    context.print(describeLetter(await letterOf(tools, id), output, new Date())),
  )

/** Replays the letters with these numbers, or all that the filter selects. */
export const replayLetters = (which: number[] | DeadFilter, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async (tools) => {
    let isDone = true
    const letters = Array.isArray(which) ? lettersOf(tools, which) : selectLetters(tools.dead, which)
    for await (const letter of letters) {
      const { done, text } = await replay(letter, tools)
      context.print(text)
      isDone &&= done
    }
    if (!isDone) context.setExitCode(EXIT.failed)
  })

async function* lettersOf(tools: ReplayTools, ids: readonly number[]): AsyncGenerator<DeadLetter> {
  for (const id of ids) yield await letterOf(tools, id)
}

async function letterOf({ dead }: ReplayTools, id: number): Promise<DeadLetter> {
  const letter = await dead.get(id)
  if (letter === undefined)
    throw new UsageError(`there is no dead letter ${id} in ${dead.stream}: fairlead dead ls lists them`)
  return letter
}

export interface DeadLsOptions extends DeadFilter {
  limit: number
  output: 'table' | 'json'
}

const DETAIL_CHARS = 80

/** Lists the latest letters within the limit, oldest first. */
export async function listDead(dead: DeadLetters, options: DeadLsOptions, now: Date): Promise<string> {
  const letters: DeadLetter[] = []
  let dropped = 0
  for await (const letter of selectLetters(dead, options)) {
    letters.push(letter)
    if (letters.length <= options.limit) continue
    letters.shift()
    dropped++
  }
  if (options.output === 'json') return JSON.stringify(letters.map(asJson), null, 2)
  if (letters.length === 0) return 'Nothing is dead.'
  const rows = letters.map(({ id, diedAt, reconciler, reason, stream, subject, detail }) => [
    String(id),
    duration(now.getTime() - diedAt.getTime()),
    reconciler ?? '-',
    reason,
    stream,
    subject,
    oneLine(detail, DETAIL_CHARS),
  ])
  const more = dropped === 0 ? '' : `\n… and ${dropped} older ones: --limit is ${options.limit}`
  return table(['ID', 'AGE', 'RECONCILER', 'REASON', 'STREAM', 'SUBJECT', 'DETAIL'], rows) + more
}

/** Returns the letter with its body as text, if the body is UTF-8. */
function asJson({ data, ...letter }: DeadLetter) {
  const text = textOf(data)
  const body = text === undefined ? { bodyBase64: Buffer.from(data).toString('base64') } : { body: text }
  return { ...letter, code: CODES[letter.reason], ...body }
}

export function describeLetter(letter: DeadLetter, output: 'text' | 'json', now: Date): string {
  if (output === 'json') return JSON.stringify(asJson(letter), null, 2)
  const { id, diedAt, storedAt, reconciler, reason, stream, subject, sequence, detail, headers, data, bytes } = letter
  const key = keyIn(letter)
  const lines: [string, string][] = [
    ['ID', String(id)],
    ['Died', `${diedAt.toISOString()} (${duration(now.getTime() - diedAt.getTime())} ago)`],
    ['Reason', `${reason} (${CODES[reason]})`],
    ['Detail', oneLine(detail)],
    ['Reconciler', reconciler ?? '-'],
    ['Stream', `${oneLine(stream)}${sequence === 0 ? '' : `, sequence ${sequence}`}`],
    ['Subject', oneLine(subject)],
    [key ? 'Key since' : 'Stored', storedAt.toISOString()],
  ]
  for (const [name, value] of Object.entries(headers)) lines.push(['Header', oneLine(`${name}: ${value}`)])
  const width = Math.max(...lines.map(([title]) => title.length)) + 1
  const text = lines.map(([title, value]) => `${`${title}:`.padEnd(width)}  ${value}`).join('\n')
  return key ? text : `${text}\n\n${bodyText(data, bytes)}`
}

function bodyText(data: Uint8Array, bytes: number): string {
  const kept = data.length === bytes ? `${bytes} bytes` : `${data.length} of ${bytes} bytes kept`
  const text = textOf(data)
  const shown = text?.replaceAll(/[^\P{Cc}\n\t]/gu, '·') ?? Buffer.from(data.subarray(0, 512)).toString('hex')
  return `Body (${kept}${text === undefined ? ', not text: the first 512 in hex' : ''}):\n${shown}`
}
