import type { EventEmitter } from 'node:events'
import { main } from '#cli'
import { withEnv } from './env.ts'
import type { Finished } from './fairlead.ts'

type Listener = () => void

/** What a command listens to until its process ends. */
const HEARD: [EventEmitter, string][] = [
  [process, 'SIGINT'],
  [process, 'SIGTERM'],
  [process, 'SIGHUP'],
  [process.stdout, 'error'],
]

/** A busy server has not accepted the connection within the seconds of a command, which has then done nothing. */
const NOT_IN_TIME = /^fairlead: cannot connect to NATS at \S+: timeout;/

/**
 * `fairlead …` in this process, much quicker than as one of its own: what it prints and its exit code. One at a time.
 * Again if NATS did not accept the connection in time.
 */
export async function command(args: string[], env: Record<string, string> = {}): Promise<Finished> {
  for (;;) {
    const finished = await runOnce(args, env)
    if (!NOT_IN_TIME.test(finished.stderr)) return finished
  }
}

async function runOnce(args: string[], env: Record<string, string>): Promise<Finished> {
  const { exitCode } = process
  const hearing = HEARD.map(([emitter, name]) => ({ emitter, name, before: emitter.listeners(name) as Listener[] }))
  const written = { stdout: '', stderr: '' }
  const streams = (['stdout', 'stderr'] as const).map((name) => {
    const write = process[name].write.bind(process[name])
    process[name].write = (text) => {
      written[name] += String(text)
      return true
    }
    return () => void (process[name].write = write)
  })
  const { error } = console
  console.error = (text: string) => void (written.stderr += `${text}\n`)
  using _env = withEnv(env)
  try {
    await main(['node', 'fairlead', ...args])
    return { ...written, code: Number(process.exitCode) }
  } finally {
    for (const restore of streams) restore()
    console.error = error
    for (const { emitter, name, before: known } of hearing)
      for (const one of emitter.listeners(name) as Listener[]) if (!known.includes(one)) emitter.off(name, one)
    process.exitCode = exitCode
  }
}
