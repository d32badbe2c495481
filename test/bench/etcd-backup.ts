/**
 * `npm run bench etcd-backup -- [--mib 2048] [--aws PATH]`: a snapshot of so many MiB from a real etcd to a real S3 on this
 * machine, by the agent, and by `etcdctl snapshot save` and the AWS command line, if there is one. MiB/s, CPU and the most
 * memory of the processes that move the bytes; then the agent's verify and restore.
 */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { ensureBinaries, silentProgress } from '#lab'
import { TestEtcd } from '../support/etcd.ts'
import { BUCKET, S3_CREDENTIALS, startS3 } from '../support/object-stores.ts'
import { shortTempDir } from '../support/servers.ts'
import { cpuMsOf, residentMiBOf } from '../support/usage.ts'

const MIB = 2 ** 20
const BIN = fileURLToPath(new URL('../../cli/bin.js', import.meta.url))
const QUOTA = '--quota-backend-bytes=8589934592'
const SOON = { timeoutMs: 60_000 }

const { values } = parseArgs({ options: { mib: { type: 'string', default: '2048' }, aws: { type: 'string' } } })
const mebibytes = Number(values.mib)
const binaries = await ensureBinaries(['etcdctl', 'etcdutl'], silentProgress)
await using s3 = await startS3()
await using etcd = await TestEtcd.open()
const dir = await shortTempDir()

try {
  await mkdir(join(dir, 'secret'))
  for (const [name, text] of Object.entries(s3.secret)) await writeFile(join(dir, 'secret', name), text)
  await etcd.start('a', { args: [QUOTA] })
  await etcd.serves('a')
  await fill()
  const endpoint = etcd.clientUrl('a')
  console.log(`${mebibytes} MiB`.padEnd(22), ...['MiB/s', 'seconds', 'CPU s', 'MiB'].map((word) => word.padStart(8)))

  await show('agent, backup', agent('backup', ['--endpoints', endpoint, '--timeout', '3600']))
  await show('agent, verify', agent('verify', ['--timeout', '3600']))
  await show('agent, restore', [
    ...agent('restore', ['--data-dir', join(dir, 'data'), '--name', 'b', '--peer-url', 'http://127.0.0.1:1']),
    '--token',
    'b',
    '--etcdutl',
    binaries('etcdutl'),
    '--timeout',
    '3600',
  ])
  const file = join(dir, 'snapshot.db')
  await show('etcdctl snapshot save', [binaries('etcdctl'), '--endpoints', endpoint, 'snapshot', 'save', file])
  if (values.aws !== undefined)
    await show('aws s3 cp', [
      values.aws,
      '--endpoint-url',
      s3.url,
      's3',
      'cp',
      '--no-progress',
      file,
      `s3://${BUCKET}/aws`,
    ])
} finally {
  await rm(dir, { recursive: true, force: true })
}

async function fill(): Promise<void> {
  using client = etcd.open('a')
  for (let n = 0; n < mebibytes; n++)
    await client.call('put', { key: Buffer.from(`key-${n}`), value: randomBytes(MIB - 256) }, SOON)
}

function agent(command: string, more: string[]): string[] {
  const store = ['--store', 's3', '--path', `${BUCKET}/bench`, '--endpoint', s3.url]
  return [process.execPath, BIN, 'etcd-agent', command, ...store, '--store-secret', join(dir, 'secret'), ...more]
}

/** Runs it, and looks at its memory and its CPU time until it ends. */
async function show(what: string, [file = '', ...args]: string[]): Promise<void> {
  const env = {
    ...process.env,
    AWS_ACCESS_KEY_ID: S3_CREDENTIALS.accessKeyId,
    AWS_SECRET_ACCESS_KEY: S3_CREDENTIALS.secretAccessKey,
    AWS_DEFAULT_REGION: 'us-east-1',
  }
  const begun = performance.now()
  const child = spawn(file, args, { env, stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()))
  let [memory, cpuMs] = [0, 0]
  const looking = setInterval(() => {
    // One that has ended and was not waited for has none.
    memory = Math.max(memory, residentMiBOf(child.pid ?? 0) || 0)
    cpuMs = cpuMsOf(child.pid ?? 0)
  }, 50)
  const [code] = (await once(child, 'close')) as [number]
  clearInterval(looking)
  if (code !== 0) throw new Error(`${what} ended with exit code ${code}: ${said}`)
  const seconds = (performance.now() - begun) / 1000
  const row = [what.padEnd(22), mebibytes / seconds, seconds, cpuMs / 1000, memory]
  console.log(row.map((value) => (typeof value === 'number' ? value.toFixed(1).padStart(8) : value)).join(' '))
}
