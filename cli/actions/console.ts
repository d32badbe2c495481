import { once } from 'node:events'
import { untilStopped } from '#host/exit'
import { openConsole } from '../console/open.ts'
import type { CommandContext } from '../options.ts'

export interface ConsoleFlags {
  port?: number
  open: boolean
  allowWrites: boolean
  function: string[]
}

/** Serves the console until the process is stopped. */
export async function serveConsole(flags: ConsoleFlags, { config, print }: CommandContext): Promise<void> {
  const settings = await config()
  const { signal } = untilStopped()
  const env = { ...process.env }
  await using served = await openConsole(settings, { ...flags, env })
  print(`The console is at ${served.address}`)
  print(flags.allowWrites ? 'Writes are on.' : 'It only reads. --allow-writes also lets it act on the queue.')
  if (flags.open && process.stdout.isTTY) served.openBrowser()
  if (!signal.aborted) await once(signal, 'abort')
}
