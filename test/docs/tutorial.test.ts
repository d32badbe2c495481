import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { ensureBinaries, silentProgress } from '#lab'
import { startTestCluster } from '../support/servers.ts'
import { authorsFolder, PACKED_WITHIN_MS } from './author.ts'
import { type Block, blocksOf } from './blocks.ts'

const DEV = 'npx fairlead dev -f website.ts'

let cluster: Awaited<ReturnType<typeof startTestCluster>>
let dir: string
let env: NodeJS.ProcessEnv
let blocks: Block[]
const stack = new AsyncDisposableStack()

beforeAll(async () => {
  blocks = await blocksOf('tutorial')
  cluster = stack.use(await startTestCluster({ nats: true, controllers: true, node: 'kwok' }))
  dir = stack.use(await authorsFolder()).dir
  const kubectl = dirname((await ensureBinaries(['kubectl'], silentProgress))('kubectl'))
  const path = [join(dir, 'node_modules/.bin'), kubectl, dirname(process.execPath), process.env['PATH']].join(':')
  env = { HOME: process.env['HOME'], PATH: path, KUBECONFIG: cluster.kubeconfig }
}, PACKED_WITHIN_MS)
afterAll(async () => {
  await stack.disposeAsync()
})

const shell = async (script: string): Promise<string> => {
  const run = promisify(execFile)('sh', ['-euc', script.replaceAll('npx fairlead', 'fairlead')], { cwd: dir, env })
  const { stdout, stderr } = await run.catch((error: Error & { stdout: string; stderr: string }) => {
    throw new Error(`${script}\n${error.stdout}\n${error.stderr}`, { cause: error })
  })
  return stdout + stderr
}

it('an operator, written from the documentation alone, works in under 40 lines', async () => {
  const source = blocks.find(({ about }) => about === 'website.ts')!.text
  expect(source.trim().split('\n').length).toBeLessThan(40)

  const shown: string[] = []
  for (const { language, about, text } of blocks.slice(1)) {
    if (about === 'background') await startDev(text.trim())
    else if (language !== 'sh') await writeFile(join(dir, about), text)
    else if (!text.includes('local env')) shown.push(await shell(text))
  }

  const output = shown.join('\n')
  expect(output).toMatch(/^(#|ℹ) fail 0$/m)
  expect(output).toMatch(/^hello +1 +\d+s$/m)
  expect(await readFile(join(dir, 'website-crd.yaml'), 'utf8')).toContain('websites.example.com')
  expect(await readFile(join(dir, 'website-rbac.yaml'), 'utf8')).toContain('fairlead-website')

  const legal = `my.${'very-long-'.repeat(20)}site`
  const site = { apiVersion: 'example.com/v1', kind: 'Website', metadata: { name: legal }, spec: { html: 'hello' } }
  await writeFile(join(dir, 'legal.yaml'), JSON.stringify(site))
  await shell(`kubectl apply -f legal.yaml && kubectl wait --for=condition=Ready website/${legal} --timeout=30s`)

  await writeFile(join(dir, 'website.ts'), source.replace('html: z.string().min(1)', 'html: z.int32()'))
  const check = 'npx fairlead generate crds -f website.ts --compatible-with website-crd.yaml'
  await expect(shell(check)).rejects.toThrow('spec.html was string, and would be integer')
})

/** Starts `fairlead dev` on the servers of this test instead of the user's. It reports errors of a file, and waits. */
async function startDev(command: string): Promise<void> {
  expect(command).toBe(DEV)
  const servers = ['--kubeconfig', cluster.kubeconfig, '--nats', cluster.nats?.url ?? '']
  const child = spawn(join(dir, 'node_modules/.bin/fairlead'), [...servers, 'dev', '-f', 'website.ts'], {
    cwd: dir,
    env,
    stdio: ['ignore', 'inherit', 'pipe'],
  })
  const output: string[] = []
  child.stderr.on('data', (chunk: Buffer) => output.push(chunk.toString()))
  const says = async (text: string) => {
    const signal = AbortSignal.timeout(25_000)
    while (!output.join('').includes(text)) {
      if (child.exitCode !== null) throw new Error(`fairlead dev has ended: ${output.join('')}`)
      await once(child.stderr, 'data', { signal }).catch((cause: Error) => {
        throw new Error(`fairlead dev does not say "${text}": ${output.join('')}`, { cause })
      })
    }
    output.length = 0
  }
  stack.defer(async () => {
    const ended = once(child, 'exit')
    child.kill('SIGINT')
    expect(await ended).toEqual([0, null])
  })
  await says('reconciler served')

  const file = join(dir, 'website.ts')
  const source = await readFile(file, 'utf8')
  await writeFile(file, source.replace('reconcile(', 'reconcile(('))
  await says('waiting for a change of its files')
  await writeFile(file, source)
  await says('reconciler served')
}
