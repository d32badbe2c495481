import { type ChildProcess, spawn } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { freePorts } from '../../../packages/lab/ports.ts'

/** What a hook was last asked about an object, and answered. */
export interface Call {
  request: {
    controller: KubeObject
    parent?: KubeObject
    object?: KubeObject
    children?: Record<string, Record<string, KubeObject>>
    attachments?: Record<string, Record<string, KubeObject>>
    related?: Record<string, Record<string, KubeObject>>
  }
  answer: {
    children?: KubeObject[]
    attachments?: KubeObject[]
    status?: Record<string, unknown>
    labels?: Record<string, string | null>
  }
}

/** Each of these programs listens on port 80 of all addresses, and is given another port of this machine. */
const PYTHON = `
import http.server, runpy, sys
class Here(http.server.ThreadingHTTPServer):
    def __init__(self, address, handler):
        super().__init__(('127.0.0.1', int(sys.argv[2])), handler)
http.server.HTTPServer = Here
runpy.run_path(sys.argv[1], run_name='__main__')`
const NODE = (port: number) => `
import http from 'node:http'
const { listen } = http.Server.prototype
http.Server.prototype.listen = function () { return listen.call(this, ${port}, '127.0.0.1') }`

/**
 * The hooks of the examples as their authors have written them, each in a process, behind an address that knows what they were
 * last asked and have answered, and that fails at times.
 */
export class Hooks implements AsyncDisposable {
  /** By the name of the controller and the uid of its object. */
  readonly calls = new Map<string, Call>()
  asked = 0
  failed = 0
  readonly #programs = new Map<string, { start: () => ChildProcess; child: ChildProcess; port: number }>()
  readonly #fails: () => boolean
  readonly #server = createServer((request, response) => {
    this.#answer(request).then(
      ({ code, text }) => response.writeHead(code, { 'content-type': 'application/json' }).end(text),
      (error) => response.writeHead(502).end(String(error)),
    )
  })

  constructor(fails: () => boolean) {
    this.#fails = fails
  }

  /** Starts the program of an example, and returns the address of its hooks. */
  async serve(name: string, file: string): Promise<string> {
    const [port = 0] = await freePorts(1)
    const start = () => (file.endsWith('.py') ? spawnPython(file, port) : spawnNode(file, port))
    this.#programs.set(name, { start, child: start(), port })
    if (!this.#server.listening) await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/${name}`
  }

  /** SIGKILL of the program of one example. */
  async restart(name: string): Promise<void> {
    const program = this.#programs.get(name)
    if (program === undefined) throw new Error(`no hook of ${name} runs`)
    program.child.kill('SIGKILL')
    await sleep(500)
    program.child = program.start()
  }

  async #answer(request: IncomingMessage): Promise<{ code: number; text: string }> {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const body = Buffer.concat(chunks).toString()
    const [, name = '', path = ''] = (request.url ?? '').split('/')
    this.asked++
    if (this.#fails()) {
      this.failed++
      return { code: 500, text: 'this call fails' }
    }
    const url = `http://127.0.0.1:${this.#programs.get(name)?.port}/${path}`
    const answered = await fetch(url, { method: 'POST', body, headers: { 'content-type': 'application/json' } })
    const text = await answered.text()
    if (answered.status === 200 && path !== 'customize') {
      const call: Call = { request: JSON.parse(body), answer: JSON.parse(text) }
      const { controller, parent, object } = call.request
      this.calls.set(`${controller.metadata.name}/${(parent ?? object)?.metadata.uid}`, call)
    }
    return { code: answered.status, text }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { child } of this.#programs.values()) child.kill('SIGKILL')
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

const spawnPython = (file: string, port: number) =>
  spawn('python3', ['-c', PYTHON, file, String(port)], { stdio: 'ignore' })

/** The server of the examples for hooks in JavaScript reads them from a folder beside it. */
function spawnNode(file: string, port: number): ChildProcess {
  const dir = mkdtempSync(join(tmpdir(), 'fl-hooks-'))
  mkdirSync(join(dir, 'hooks'))
  cpSync(file, join(dir, 'hooks/sync.js'))
  cpSync(join(file, '../../../nodejs/server.js'), join(dir, 'server.js'))
  const before = `data:text/javascript,${encodeURIComponent(NODE(port))}`
  return spawn(process.execPath, ['--import', before, 'server.js'], { cwd: dir, stdio: 'ignore' })
}
