import { setTimeout as sleep } from 'node:timers/promises'
import type { ProcessGroup, ProcessSpec } from '#lab'
import { type FairleadProcess, startFairlead } from '../../support/fairlead.ts'

const OURS = 2

/** Who serves the objects. */
export type Serving = 'other' | 'fairlead'

/** What `fairlead diff` finds of one Reconciler. */
export interface Difference {
  reconciler: string
  kind: string
  failed: number
  shapes: { kind?: string; what: string }[]
}

interface Given {
  /** Starts the program that Fairlead takes the place of. */
  other: Omit<ProcessSpec, 'name'>
  /** What names the functions: `--adapter metacontroller`. */
  functions: readonly string[]
  env: Record<string, string>
  processes: ProcessGroup
  random: () => number
  say: (line: string) => void
}

/** The other program and Fairlead, of which one serves. */
export class Sides implements AsyncDisposable {
  serving: Serving = 'other'
  kills = 0
  readonly lives: FairleadProcess[] = []
  #ours: FairleadProcess[] = []
  readonly #given: Given

  constructor(given: Given) {
    this.#given = given
  }

  async startOther(): Promise<void> {
    await this.#given.processes.start({ name: 'other', ...this.#given.other })
    this.serving = 'other'
  }

  /** SIGKILL of a process that serves, and another one after a moment. */
  async kill(): Promise<void> {
    const { processes, random } = this.#given
    this.kills++
    if (this.serving === 'other') {
      await processes.kill('other')
      await sleep(2000 * random())
      return this.startOther()
    }
    const [victim] = this.#ours.splice(Math.floor(random() * this.#ours.length), 1)
    victim?.kill('SIGKILL')
    await victim?.exited
    await sleep(2000 * random())
    this.#ours.push(this.#start(['up']))
  }

  /** The first half of a cut-over, while the other program serves. SIGKILL may end the first try. */
  async prepare(): Promise<void> {
    if (this.#given.random() < 1 / 2) {
      await using first = this.#start(['install'])
      await sleep(4000 * this.#given.random())
      first.kill('SIGKILL')
      this.kills++
    }
    await this.#run('install')
  }

  async differences(): Promise<Difference[]> {
    const text = await this.#run('diff', '--all', '-o', 'json')
    return (JSON.parse(text) as { reconcilers: Difference[] }).reconcilers
  }

  /** The second half, as the pages of the adapters have it. */
  async takeOver(): Promise<void> {
    const { processes, random } = this.#given
    if (random() < 1 / 2) await processes.kill('other')
    else await processes.stop('other')
    await this.#run('install')
    for (let index = 0; index < OURS; index++) this.#ours.push(this.#start(['up']))
    this.serving = 'fairlead'
  }

  async goBack(): Promise<void> {
    await this.#run('uninstall', '--release-finalizers')
    await this.#stopOurs()
    await this.startOther()
  }

  /** Runs a command to its end, and returns its result. A difference has the exit code 1. */
  async #run(command: string, ...args: string[]): Promise<string> {
    const began = performance.now()
    await using run = this.#start([command, ...args])
    const { code, signal } = await run.exited
    const told = run.logs.map(({ msg }) => msg).join('\n')
    this.#given.say(`fairlead ${command}: ${code ?? signal}, ${((performance.now() - began) / 1000).toFixed(0)} s`)
    if (code !== 0 && !(command === 'diff' && run.output.length > 0))
      throw new Error(`fairlead ${command} ended with ${code ?? signal}: ${told}`)
    return run.output.join('\n')
  }

  #start([command = '', ...args]: readonly string[]): FairleadProcess {
    const level = command === 'up' ? 'info' : 'warn'
    const { functions, env } = this.#given
    const started = startFairlead([command, ...functions, ...args], { ...env, LOG_LEVEL: level })
    this.lives.push(started)
    return started
  }

  async #stopOurs(): Promise<void> {
    const ours = this.#ours.splice(0)
    for (const one of ours) one.kill('SIGTERM')
    await Promise.all(ours.map(({ exited }) => exited))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const one of this.lives) one.kill('SIGKILL')
    await Promise.all(this.lives.map(({ exited }) => exited))
  }
}
