import { createInterface } from 'node:readline/promises'
import { EXIT, UsageError, untilStopped } from '#host/exit'
import { withExistingStreams } from '#inspect/keys'
import type { CommandContext } from '../options.ts'
import { type ActOptions, actOnKeys } from '../queue/act.ts'
import { type DrainOptions, untilDrained } from '../queue/drain.ts'
import { type LsOptions, listQueue } from '../queue/ls.ts'
import { type RunNowOptions, runNow } from '../queue/run.ts'
import { type ShowOptions, showKey } from '../queue/show.ts'
import { type Screen, watchQueue } from '../queue/watch.ts'

export type WatchOptions = LsOptions & { watch?: boolean }
/** `yes` is undefined for actions without a confirmation. */
export type GivenActOptions = ActOptions & { yes?: boolean }

const now = () => new Date()

export const ls = ({ watch, ...options }: WatchOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ queue, view: events }) => {
    if (watch) await watchQueue({ queue, events }, options, screenOf(process.stdout), now, untilStopped().signal)
    else context.print(await listQueue({ queue, events }, options, now))
  })

export const show = (options: ShowOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ queue, view: events }) =>
    context.print(await showKey({ queue, events }, options, now())),
  )

export const actOn = ({ yes = true, ...options }: GivenActOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ queue }) => {
    const confirm = yes ? async () => undefined : askOnTerminal
    const tools = { print: context.print, confirm, signal: untilStopped().signal }
    if (!(await actOnKeys(queue, options, tools))) context.setExitCode(EXIT.failed)
  })

export const run = (options: RunNowOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ queue, view: events }) => {
    if (!(await runNow(options, { queue, events, print: context.print }))) context.setExitCode(EXIT.failed)
  })

export const drain = (options: DrainOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ queue }) => {
    const report = (text: string) => console.error(text)
    context.print(await untilDrained(queue, options, untilStopped().signal, report))
  })

function screenOf(stream: NodeJS.WriteStream): Screen {
  const size = () => ({ rows: stream.rows, columns: stream.columns })
  return {
    write: (text) => void stream.write(text),
    note: (text) => console.error(text),
    size: stream.isTTY ? size : undefined,
  }
}

async function askOnTerminal(question: string): Promise<void> {
  if (!process.stdin.isTTY) throw new UsageError(`${question} Input is not a terminal: add --yes`)
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  try {
    const answer = await terminal.question(`${question} [y/N] `)
    if (!/^y(es)?$/i.test(answer.trim())) throw new Error('nothing was done')
  } finally {
    terminal.close()
  }
}
