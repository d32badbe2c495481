import { join } from 'node:path'
import { type EtcdTls, openEtcd } from '#functions/etcd/client'
import { type BinaryName, ensureBinaries, type ProcessGroup, silentProgress } from '#lab'
import { freePorts } from '../../packages/lab/ports.ts'
import { STARTS_WITHIN_MS, startTestProcesses } from './servers.ts'

/** The time-out of calls in tests. */
export const SOON = { timeoutMs: 5000 }

export interface MemberOptions {
  /** Default `new`. */
  state?: 'new' | 'existing'
  /** The names of all members in its configuration; default: itself. */
  cluster?: readonly string[]
  binary?: BinaryName
  args?: readonly string[]
}

/** Real members of etcd on this machine, each with a folder of its own; gone at the end of the block. */
export class TestEtcd implements AsyncDisposable {
  readonly #processes: ProcessGroup & AsyncDisposable
  readonly #ports = new Map<string, { client: number; peer: number }>()
  readonly #scheme: string
  readonly #tls: EtcdTls | undefined

  private constructor(processes: ProcessGroup & AsyncDisposable, tls: EtcdTls | undefined) {
    this.#processes = processes
    this.#tls = tls
    this.#scheme = tls === undefined ? 'http' : 'https'
  }

  static async open(tls?: EtcdTls): Promise<TestEtcd> {
    return new TestEtcd(await startTestProcesses(), tls)
  }

  async name(name: string): Promise<void> {
    if (this.#ports.has(name)) return
    const [client = 0, peer = 0] = await freePorts(2)
    this.#ports.set(name, { client, peer })
  }

  peerUrl = (name: string): string => `http://127.0.0.1:${this.#ports.get(name)?.peer}`
  clientUrl = (name: string): string => `${this.#scheme}://127.0.0.1:${this.#ports.get(name)?.client}`

  dataDir = (name: string): string => join(this.#processes.dir, `data-${name}`)

  async start(name: string, { state = 'new', cluster = [name], binary = 'etcd', args = [] }: MemberOptions = {}) {
    for (const one of cluster) await this.name(one)
    const binaries = await ensureBinaries([binary], silentProgress)
    await this.#processes.start({
      name,
      command: binaries(binary),
      args: [
        `--name=${name}`,
        `--data-dir=${this.dataDir(name)}`,
        '--unsafe-no-fsync',
        '--log-level=error',
        `--listen-client-urls=${this.clientUrl(name)}`,
        `--advertise-client-urls=${this.clientUrl(name)}`,
        `--listen-peer-urls=${this.peerUrl(name)}`,
        `--initial-advertise-peer-urls=${this.peerUrl(name)}`,
        `--initial-cluster=${cluster.map((one) => `${one}=${this.peerUrl(one)}`).join(',')}`,
        `--initial-cluster-state=${state}`,
        ...args,
      ],
      stopSignal: 'SIGKILL',
    })
  }

  /** A client of one member. */
  open = (name: string, tls = this.#tls) => openEtcd({ url: this.clientUrl(name), tls })

  /** Until the member answers linearizably. */
  async serves(name: string, tls = this.#tls): Promise<void> {
    const answers = async () => {
      using etcd = this.open(name, tls)
      return await etcd.call('memberList', { linearizable: true }, { timeoutMs: 500 }).then(
        () => true,
        () => false,
      )
    }
    await this.#processes.waitFor(`etcd ${name}`, answers, STARTS_WITHIN_MS, [name])
  }

  kill = (name: string): Promise<void> => this.#processes.kill(name)
  restart = async (name: string): Promise<void> => void (await this.#processes.restart(name))
  signal = (name: string, signal: NodeJS.Signals): void => this.#processes.signal(name, signal)

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#processes[Symbol.asyncDispose]()
  }
}
