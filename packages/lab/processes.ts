import { type ChildProcess, spawn } from 'node:child_process'
import {
  accessSync,
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Identity, isAlive, parseIdentity, startTimeCommand } from './lock.ts'

export interface ProcessSpec {
  name: string
  /** An absolute path. */
  command: string
  args: string[]
  /** Variables in addition to those of every server: PATH, HOME, TMPDIR, TZ of the starting process. */
  env?: Record<string, string>
  cwd?: string
  /** The signal that stops it; SIGKILL for programs without a benefit from waiting. Default SIGTERM. */
  stopSignal?: 'SIGTERM' | 'SIGKILL'
}

export interface ManagedProcess {
  readonly name: string
  readonly pid: number
  alive(): boolean
  /** Resolves at the end of the process. Polls every few milliseconds from the first use on. */
  readonly exited: Promise<void>
}

/**
 * The shell writes its own pid and start time before it becomes the server. So the folder knows every running server,
 * even if the starting process is killed in between.
 */
const REGISTER_AND_EXEC = `echo "$$ $(${startTimeCommand})" >"$0" && exec "$@"`

/**
 * The processes of one folder: DIR/pid/NAME (pid and start time), DIR/pid/NAME.json (how to start it again),
 * DIR/log/NAME.log. They run in sessions of their own and outlive the process that started them; any process can find
 * and stop them through the folder.
 */
export class ProcessGroup {
  readonly dir: string
  readonly #signal: AbortSignal | undefined

  /** start() and waitFor() throw the reason of the signal after it is aborted. */
  constructor(dir: string, signal?: AbortSignal) {
    this.dir = dir
    this.#signal = signal
    mkdirSync(join(dir, 'pid'), { recursive: true })
    mkdirSync(join(dir, 'log'), { recursive: true })
  }

  logFile(name: string): string {
    return join(this.dir, 'log', `${name}.log`)
  }

  async start(spec: ProcessSpec): Promise<ManagedProcess> {
    this.#signal?.throwIfAborted()
    if (this.get(spec.name)?.alive()) throw new Error(`${spec.name} already runs in ${this.dir}: stop it first`)
    requireExecutable(spec)
    rmSync(this.#pidFile(spec.name), { force: true })
    writeFileSync(this.#specFile(spec.name), JSON.stringify(spec), { mode: 0o600 })
    const child = this.#spawn(spec)
    const exited = exitOf(child)
    await spawned(child, spec)
    await this.#registered(spec.name, exited)
    const started = this.get(spec.name)
    if (started) return started
    rmSync(this.#specFile(spec.name), { force: true })
    throw new Error(`${spec.name} cannot be started:\n${tailOf(this.logFile(spec.name))}`)
  }

  /** Returns the last started process with that name, dead or alive. */
  get(name: string): ManagedProcess | undefined {
    const identity = this.#identityOf(name)
    if (!identity) return undefined
    return {
      name,
      pid: identity.pid,
      alive: () => isAlive(identity),
      get exited() {
        return untilGone(identity)
      },
    }
  }

  /** Returns the names of all processes that were started and not stopped. */
  names(): string[] {
    return [...new Set(readdirSync(join(this.dir, 'pid')).map((file) => file.replace(/\.json$/, '')))]
  }

  /** Sends a signal and returns immediately: for tests that crash or freeze a server. */
  signal(name: string, signal: NodeJS.Signals): void {
    const found = this.get(name)
    if (!found?.alive()) throw new Error(`${name} does not run in ${this.dir}`)
    send(found.pid, signal)
  }

  /** Sends SIGKILL and resolves after the process has ended. It can be started again. */
  async kill(name: string): Promise<void> {
    await this.#end(name, 'SIGKILL', 0)
  }

  /**
   * Sends SIGTERM by default, and SIGKILL after the grace time; resolves after the process has ended. Succeeds without
   * a process.
   */
  async stop(name: string, signal?: 'SIGTERM' | 'SIGKILL', graceMs = 10_000): Promise<void> {
    await this.#end(name, signal, graceMs)
    rmSync(this.#pidFile(name), { force: true })
    rmSync(this.#specFile(name), { force: true })
  }

  async stopAll(): Promise<void> {
    await Promise.all(this.names().map((name) => this.stop(name)))
  }

  /** Starts the process again as it was first started: same port, same data. Kills it if it is running. */
  async restart(name: string): Promise<ManagedProcess> {
    const spec = this.#specOf(name)
    if (!spec) throw new Error(`${name} was never started in ${this.dir}, so it cannot be started again`)
    await this.kill(name)
    return this.start(spec)
  }

  /**
   * Resolves with `ready`. Rejects at once, with the end of the log, when a process has died or was stopped: one of the
   * named processes, or else any process of the group.
   */
  async waitFor(
    what: string,
    ready: () => Promise<boolean>,
    timeoutMs: number,
    names?: readonly string[],
  ): Promise<void> {
    const deadline = Date.now() + timeoutMs
    const watched = new Set(names)
    while (!(await ready())) {
      this.#signal?.throwIfAborted()
      if (!names) for (const name of this.names()) watched.add(name)
      for (const name of watched) this.#throwIfLost(name, what)
      if (Date.now() > deadline) {
        throw new Error(`${what} is not ready after ${timeoutMs / 1000} s.${this.#logsOf(watched)}`)
      }
      await sleep(50)
    }
  }

  /** The end of the logs for an error: a temporary folder is deleted with its logs. */
  #logsOf(names: Iterable<string>): string {
    return [...names].map((name) => `\nThe end of the log of ${name}:\n${tailOf(this.logFile(name))}`).join('')
  }

  #throwIfLost(name: string, what: string): void {
    const found = this.get(name)
    if (found?.alive()) return
    if (!this.#specOf(name)) throw new Error(`${name} was stopped while waiting for ${what}`)
    // A process without a pid is still starting.
    if (found)
      throw new Error(`${name} died while waiting for ${what}. The end of its log:\n${tailOf(this.logFile(name))}`)
  }

  #spawn(spec: ProcessSpec): ChildProcess {
    const log = openSync(this.logFile(spec.name), 'a')
    try {
      const child = spawn('/bin/sh', ['-c', REGISTER_AND_EXEC, this.#pidFile(spec.name), spec.command, ...spec.args], {
        detached: true,
        stdio: outputTo(log),
        env: { ...serverEnvironment(), ...spec.env },
        cwd: spec.cwd ?? this.dir,
      })
      child.unref()
      return child
    } finally {
      closeSync(log)
    }
  }

  async #registered(name: string, exited: Promise<void>): Promise<void> {
    const gone = exited.then(() => 'gone')
    while (!this.#identityOf(name) && (await Promise.race([gone, sleep(2)])) !== 'gone') continue
  }

  /** Waits until the shell has registered a process whose starter was just killed. */
  async #registeredIfStarting(name: string): Promise<void> {
    for (let waited = 0; waited < 500 && this.#specOf(name) && !this.#identityOf(name); waited += 5) await sleep(5)
  }

  async #end(name: string, signal: 'SIGTERM' | 'SIGKILL' | undefined, graceMs: number): Promise<void> {
    await this.#registeredIfStarting(name)
    const found = this.get(name)
    if (!found?.alive()) return
    const chosen = signal ?? this.#specOf(name)?.stopSignal ?? 'SIGTERM'
    send(found.pid, chosen)
    // A stopped process handles SIGTERM only after SIGCONT.
    if (chosen === 'SIGTERM') send(found.pid, 'SIGCONT')
    const inTime = chosen === 'SIGKILL' ? undefined : sleep(graceMs, 'late', { ref: false })
    if (inTime && (await Promise.race([found.exited, inTime])) === 'late') send(found.pid, 'SIGKILL')
    await found.exited
  }

  #pidFile(name: string): string {
    return join(this.dir, 'pid', name)
  }

  #specFile(name: string): string {
    return join(this.dir, 'pid', `${name}.json`)
  }

  #identityOf(name: string): Identity | undefined {
    const text = readIfThere(this.#pidFile(name))
    return text === undefined ? undefined : parseIdentity(text)
  }

  #specOf(name: string): ProcessSpec | undefined {
    const text = readIfThere(this.#specFile(name))
    return text === undefined ? undefined : (JSON.parse(text) as ProcessSpec)
  }
}

function requireExecutable(spec: ProcessSpec): void {
  try {
    accessSync(spec.command, constants.X_OK)
  } catch (cause) {
    throw new Error(`${spec.name} cannot be started: ${spec.command} is not an executable file`, { cause })
  }
}

/** Returns the environment of a server. Leaves out proxies and settings of etcd or Go, which are for other programs. */
function serverEnvironment(): Record<string, string | undefined> {
  const { PATH = '', HOME = '/', TMPDIR, TZ } = process.env
  return { PATH: `${PATH}:/usr/sbin:/usr/bin:/sbin:/bin`, HOME, TMPDIR, TZ }
}

/**
 * Closes inherited files in the server: a process that waits for the end of such a pipe would wait for the end of the
 * server. The log replaces them, since some shells cannot close files with two digits.
 */
function outputTo(log: number): (number | 'ignore')[] {
  const inherited = inheritableDescriptors()
  const count = Math.max(2, ...inherited) + 1
  return Array.from({ length: count }, (_, at) => (at === 1 || at === 2 || inherited.includes(at) ? log : 'ignore'))
}

function spawned(child: ChildProcess, spec: ProcessSpec): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once('spawn', resolve)
    child.once('error', (cause) => reject(new Error(`${spec.name} cannot be started: ${cause.message}`, { cause })))
  })
}

function exitOf(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    child.once('exit', () => resolve())
  })
}

/** Polls, so that it works for processes that are not children, or are unreferenced. Keeps the event loop alive. */
async function untilGone(identity: Identity): Promise<void> {
  while (isAlive(identity)) await sleep(20)
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

const O_CLOEXEC = 0o2000000

/**
 * Returns the open files above standard error that child processes would inherit. This process has inherited them
 * itself, such as bash's pipe for `2> >(…)`, since Node.js opens its own files with O_CLOEXEC. Empty on macOS, where
 * the spawn of Node.js passes only the files of its options.
 */
function inheritableDescriptors(): number[] {
  if (process.platform !== 'linux') return []
  return readdirSync('/proc/self/fd')
    .map(Number)
    .filter((descriptor) => descriptor > 2 && isInheritable(descriptor))
}

function isInheritable(descriptor: number): boolean {
  try {
    const [, flags = ''] = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'utf8')) ?? []
    return (Number.parseInt(flags, 8) & O_CLOEXEC) === 0
  } catch {
    // The descriptor that read the folder is closed again.
    return false
  }
}

const BYTES = 8192

/** Returns the last lines of a log, from at most 8 KiB; a note if the log does not exist. */
function tailOf(file: string, lines = 20): string {
  let fd: number
  try {
    fd = openSync(file, 'r')
  } catch {
    return `(no log at ${file})`
  }
  try {
    const size = fstatSync(fd).size
    const buffer = Buffer.alloc(Math.min(size, BYTES))
    readSync(fd, buffer, 0, buffer.length, size - buffer.length)
    return buffer.toString('utf8').trimEnd().split('\n').slice(-lines).join('\n') || `(${file} is empty)`
  } finally {
    closeSync(fd)
  }
}
