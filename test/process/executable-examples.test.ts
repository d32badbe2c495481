import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { FunctionInput, KubeObject } from '#contracts'
import { executable } from '#process/executable'
import { silent as log } from '../support/silent.ts'

const EXAMPLES = join(import.meta.dirname, '../../docs/examples/executables')
const run = promisify(execFile)

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-examples-'))
})
afterAll(() => rm(dir, { recursive: true, force: true }))

interface Case {
  html: string
  replicas?: number
  ready?: number
}

function inputOf({ html, replicas, ready }: Case): FunctionInput {
  const metadata = { name: 'hello', namespace: 'default', uid: 'u', resourceVersion: '1' }
  const object = { apiVersion: 'example.com/v1', kind: 'Website', metadata, spec: { html, replicas } }
  const deployment = { apiVersion: 'apps/v1', kind: 'Deployment', metadata, status: { readyReplicas: ready } }
  const owned: Record<string, KubeObject[]> = ready === undefined ? {} : { 'Deployment.v1.apps': [deployment] }
  return { object, owned, related: {}, attempt: 0, now: '2030-01-01T00:00:00Z', finalizing: false }
}

/** What each of the examples decides. */
function outcomeOf({ html, replicas = 1, ready = 0 }: Case): object {
  const labels = { app: 'hello' }
  const server = {
    name: 'httpd',
    image: 'busybox',
    command: ['httpd', '-f', '-p', '8080', '-h', '/www'],
    volumeMounts: [{ name: 'page', mountPath: '/www' }],
  }
  const pod = { containers: [server], volumes: [{ name: 'page', configMap: { name: 'hello' } }] }
  const [status, reason] = ready === replicas ? ['True', 'Serving'] : ['False', 'Starting']
  return {
    apply: [
      { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'hello' }, data: { 'index.html': html } },
      {
        apiVersion: 'apps/v1',
        kind: 'Deployment',
        metadata: { name: 'hello' },
        spec: { replicas, selector: { matchLabels: labels }, template: { metadata: { labels }, spec: pod } },
      },
    ],
    status: { ready },
    conditions: [{ type: 'Ready', status, reason }],
  }
}

const CASES: Case[] = [
  { html: '<h1>hi</h1>' },
  { html: 'ü "quoted" \\ $HOME\n', replicas: 3, ready: 2 },
  { html: 'a', replicas: 2, ready: 2 },
]

/** Returns the command of an example, or why it cannot run here. */
const examples: Record<string, () => Promise<string>> = {
  'website.sh': async () => {
    await run('jq', ['--version']).catch(() => {
      throw new Error('jq is not in PATH: apt-get install jq, or brew install jq')
    })
    return join(EXAMPLES, 'website.sh')
  },
  'website.py': async () => join(EXAMPLES, 'website.py'),
  go: async () => {
    const program = join(dir, 'website')
    await run('go', ['build', '-o', program, '.'], { cwd: join(EXAMPLES, 'go') })
    return program
  },
}

describe.each([
  ['website.sh', false],
  ['website.py', false],
  ['website.py', true],
  ['go', false],
  ['go', true],
])('the example %s, with lines: %s', (example, lines) => {
  it('decides as the others do, and logs about it', async () => {
    const command = (await examples[example]?.()) ?? ''
    const program = executable({ command, lines, timeoutSeconds: 60, concurrency: 1, variables: [] })
    const said: string[] = []
    const context = {
      log: { ...log, info: (_: object, line: string) => void said.push(line) },
      signal: new AbortController().signal,
    }
    try {
      for (const one of CASES) expect(await program.invoke(inputOf(one), context)).toEqual(outcomeOf(one))
      const refusal = { name: 'TerminalError', reason: 'ScriptInPage', message: 'spec.html has a script: take it out' }
      await expect(program.invoke(inputOf({ html: '<script>' }), context)).rejects.toMatchObject(refusal)
      expect(said).toEqual(CASES.map(() => expect.stringMatching(/deciding about hello$/) as string))
    } finally {
      await program.stop()
    }
  })
})
