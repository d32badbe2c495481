/**
 * `node test/docs/record.ts`: plays the story of the README on real servers, and draws it as docs/images/explain-*.svg: an
 * object is not ready, `fairlead explain` names the cause, and the fix makes it ready. Needs root, as a real node does.
 */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { addImage, ensureBinaries, progressOn } from '#lab'
import { startTestCluster } from '../support/servers.ts'
import { until } from '../support/wait.ts'
import { type Line, recording, SCHEMES } from './recording.ts'

const ROOT = join(import.meta.dirname, '../..')
const BIN = join(ROOT, 'cli/bin.js')
const EXAMPLE = join(ROOT, 'docs/examples/website')

const progress = progressOn(process.stderr)
await using cluster = await startTestCluster({ nats: true, controllers: true, node: 'real', progress })
const kubectl = dirname((await ensureBinaries(['kubectl'], progress))('kubectl'))
const env = {
  ...process.env,
  KUBECONFIG: cluster.kubeconfig,
  NATS_URL: cluster.nats?.url ?? '',
  PATH: [kubectl, dirname(process.execPath), process.env['PATH']].join(':'),
}
await addImage(cluster.registryUrl ?? '', 'shop/web:2.1', {
  files: { 'bin/sleep': { from: '/bin/busybox' } },
  config: { Entrypoint: ['/bin/sleep', '1000000000'] },
})
const platform = spawn(process.execPath, [BIN, 'up', '--install', '-f', join(EXAMPLE, 'website.ts')], {
  env,
  stdio: ['ignore', 'inherit', 'inherit'],
})

const perform = async (command: string): Promise<string> => {
  const words = command.replace(/^npx fairlead/, `"${process.execPath}" "${BIN}"`)
  return (await promisify(execFile)('sh', ['-c', words], { env, cwd: EXAMPLE })).stdout.trimEnd()
}
const lines: Line[] = []
/** Adds a command and its output, which appear after a pause. */
async function tell(command: string, pauseMs: number, isOver: (output: string) => boolean): Promise<void> {
  let output = ''
  await until(async () => {
    output = await perform(command).catch(({ stderr }: { stderr: string }) => stderr)
    return isOver(output)
  })
  const atMs = (lines.at(-1)?.atMs ?? 0) + pauseMs
  lines.push({ text: `$ ${command}`, atMs })
  for (const text of output.split('\n')) lines.push({ text, atMs: atMs + (lines.length > 1 && pauseMs > 0 ? 300 : 0) })
}

await until(async () => (await perform('kubectl get websites')) !== undefined)
await perform(`sed 's/nginx:1.29/shop/web:2.l/' hello.yaml | kubectl apply -f -`.replace('shop/web', 'shop\\/web'))
const READ_MS = 1800
await tell('kubectl get websites', 0, (text) => text.includes('Starting'))
await tell('npx fairlead explain website/hello', READ_MS, (text) => text.includes('ImagePullBackOff'))
await tell(`kubectl patch website hello --type merge -p '{"spec":{"image":"shop/web:2.1"}}'`, READ_MS * 1.5, (text) =>
  text.includes('patched'),
)
await tell('kubectl get websites', READ_MS / 2, (text) => text.includes('Serving'))

const ended = once(platform, 'exit')
platform.kill('SIGINT')
await ended
mkdirSync(join(ROOT, 'docs/images'), { recursive: true })
for (const [name, scheme] of Object.entries(SCHEMES))
  writeFileSync(join(ROOT, `docs/images/explain-${name}.svg`), recording(lines, scheme))
