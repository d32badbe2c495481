import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { EtcdTls } from '#functions/etcd/client'
import { issueFrom, newAuthority } from '#pki'
import { command } from '../../../support/command.ts'
import { SOON, TestEtcd } from '../../../support/etcd.ts'
import { BUCKET, startAbs, startGcs, startS3, type TestStore } from '../../../support/object-stores.ts'
import { shortTempDir } from '../../../support/servers.ts'

const validity = { now: new Date(), days: 1 }
const ca = newAuthority({ cn: 'test' }, validity)
const pem = (cn: string, sans: string[] = []) => {
  const { certificate, privateKey } = issueFrom(ca, { subject: { cn }, sans }, validity)
  return { cert: certificate, key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string }
}
const client: EtcdTls = { ca: ca.certificate, ...pem('client') }

/** By the names that the Secrets of EtcdCluster and EtcdBackup have. */
const TLS_SECRET = { 'etcd-client-ca.crt': client.ca, 'etcd-client.crt': client.cert, 'etcd-client.key': client.key }

async function folderOf(files: Record<string, string | undefined>): Promise<string> {
  const dir = join(await shortTempDir(), 'secret')
  await mkdir(dir)
  for (const [name, text = ''] of Object.entries(files)) await writeFile(join(dir, name), text)
  return dir
}

const stores: [string, () => Promise<TestStore>][] = [
  ['s3', startS3],
  ['abs', startAbs],
  ['gcs', startGcs],
]

describe.each(stores)('the agent, with %s and an etcd that demands certificates', (kind, start) => {
  let server: TestStore
  let etcd: TestEtcd
  let base: string[]
  let report: string
  beforeAll(async () => {
    ;[server, etcd] = await Promise.all([start(), TestEtcd.open(client)])
    const files = await folderOf({ ca: ca.certificate, ...pem('server', ['127.0.0.1']) })
    const [caFile, cert, key] = ['ca', 'cert', 'key'].map((name) => join(files, name))
    const tls = ['--client-cert-auth', `--trusted-ca-file=${caFile}`, `--cert-file=${cert}`, `--key-file=${key}`]
    await etcd.start('a', { args: tls })
    await etcd.serves('a')
    report = join(files, 'report')
    base = [`--store=${kind}`, `--endpoint=${server.url}`, `--store-secret=${await folderOf(server.secret)}`]
  })
  afterAll(async () => {
    await etcd?.[Symbol.asyncDispose]()
    await server?.[Symbol.asyncDispose]()
  })

  const run = (...words: string[]) => command(['etcd-agent', ...words, ...base, `--report=${report}`])
  async function agent(...words: string[]) {
    expect(await run(...words)).toMatchObject({ code: 0 })
    return JSON.parse(await readFile(report, 'utf8')) as Record<string, unknown>
  }

  it('backs up, keeps so many, and verifies what it has stored', async () => {
    const tls = `--etcd-tls=${await folderOf(TLS_SECRET)}`
    const from = [`--endpoints=${etcd.clientUrl('a')}`, tls, '--periodic', '--keep=1']
    const made: Record<string, unknown>[] = []
    for (let n = 0; n < 2; n++) {
      using member = etcd.open('a')
      await member.call('put', { key: Buffer.from('n'), value: Buffer.from(String(n)) }, SOON)
      made.push(await agent('backup', `--path=${BUCKET}/etcd/prod`, ...from))
    }
    const [first, last] = made.map(({ path }) => String(path).replace(/^\w+:\/\/\w+\//, ''))
    expect(made[1]?.['deleted']).toEqual([first])
    const { path, size, sha256, etcdVersion } = made[1] ?? {}
    expect(await agent('verify', `--path=${BUCKET}/${last}`)).toEqual({
      path,
      size,
      sha256,
      etcdVersion,
      etcdRevision: 3,
    })
  })

  it('says which key of which Secret is missing', async () => {
    const tlsless = await run(
      'backup',
      `--path=${BUCKET}/x`,
      `--endpoints=${etcd.clientUrl('a')}`,
      `--etcd-tls=${await folderOf({})}`,
    )
    expect(tlsless.code).toBe(1)
    expect(tlsless.stderr).toMatch(/the Secret of the client of etcd does not exist or has no key etcd-client-ca\.crt/)
    const empty = await folderOf({})
    const args = ['etcd-agent', 'verify', `--store=${kind}`, `--path=${BUCKET}/x`, `--store-secret=${empty}`]
    const { code, stderr } = await command(args)
    expect(code).toBe(1)
    expect(stderr).toMatch(/the Secret of the store does not exist or has no key (credentials|storage-account)/)
  })

  it('is not let in without a certificate, and says so', async () => {
    const { code, stderr } = await run('backup', `--path=${BUCKET}/x`, `--endpoints=${etcd.clientUrl('a')}`)
    expect(code).toBe(1)
    expect(stderr).toMatch(/no etcd member answers within 5 s: check the endpoints and the certificates/)
  })
})
