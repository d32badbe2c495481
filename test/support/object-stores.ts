import { createHash, type Hash } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { join } from 'node:path'
import { BlobServiceClient, StorageSharedKeyCredential } from '@azure/storage-blob'
import { openAbs, openGcs, openS3, type Store } from '#functions/etcd/stores'
import type { ProcessGroup } from '#lab'
import { issueFrom, newAuthority } from '#pki'
import { freePorts } from '../../packages/lab/ports.ts'
import { fakeGcsServer, versitygw } from './go-program.ts'
import { azurite } from './node-program.ts'
import { STARTS_WITHIN_MS, startTestProcesses } from './servers.ts'

export const BUCKET = 'backups'
/** Small, so that few objects take several pages. */
const PAGE = 2

/** A real server that stores objects, on loopback; gone with its data at the end of the block. */
export interface TestStore extends AsyncDisposable {
  url: string
  store: Store
  /** Files as the Secret of such a store has them. */
  secret: Record<string, string>
  processes: ProcessGroup
}

export const S3_CREDENTIALS = { accessKeyId: 'KEYOFTESTS', secretAccessKey: 'secret-of-tests' }
const REGION = 'us-east-1'

/** A certificate for the names of a server. */
export interface TestTls {
  /** The PEM of its authority. */
  ca: string
  /** Stores it in the folder, and gives the arguments that name it. */
  files: (dir: string) => Promise<string[]>
}

export function newTls(sans: string[]): TestTls {
  const validity = { now: new Date(), days: 1 }
  const authority = newAuthority({ cn: 'test' }, validity)
  const { certificate, privateKey } = issueFrom(authority, { subject: { cn: 'store' }, sans }, validity)
  return {
    ca: authority.certificate,
    async files(dir) {
      const [cert, key] = [join(dir, 'tls.crt'), join(dir, 'tls.key')]
      await writeFile(cert, certificate)
      await writeFile(key, privateKey.export({ type: 'pkcs8', format: 'pem' }))
      return ['--cert', cert, '--key', key]
    },
  }
}

/** All bytes of an object. */
export const all = async (chunks: AsyncIterable<Uint8Array>): Promise<Buffer> =>
  Buffer.concat(await Array.fromAsync(chunks))

interface S3Server {
  host?: string
  tls?: TestTls
}

/** versitygw: an S3 gateway over a folder. */
export async function startS3({ host = '127.0.0.1', tls }: S3Server = {}): Promise<TestStore> {
  const program = await versitygw()
  const { accessKeyId, secretAccessKey } = S3_CREDENTIALS
  const credentials = `[default]\naws_access_key_id = ${accessKeyId}\naws_secret_access_key = ${secretAccessKey}\n`
  return started('s3', host, async (dir, port) => {
    const [data, attributes] = [join(dir, 'data'), join(dir, 'attributes')]
    await mkdir(join(data, BUCKET), { recursive: true })
    await mkdir(attributes)
    const url = `${tls === undefined ? 'http' : 'https'}://${host}:${port}`
    return {
      command: program,
      args: [
        ...((await tls?.files(dir)) ?? []),
        '--access',
        accessKeyId,
        '--secret',
        secretAccessKey,
        '--region',
        REGION,
        '--port',
        `${host}:${port}`,
        'posix',
        '--sidecar',
        attributes,
        data,
      ],
      url,
      secret: { credentials, config: `[default]\nregion = ${REGION}\n` },
      store: await openS3({
        bucket: BUCKET,
        region: REGION,
        endpoint: url,
        credentials: S3_CREDENTIALS,
        ca: tls?.ca,
        pageSize: PAGE,
      }),
    }
  })
}

/** The account that every Azurite has. */
export const ACCOUNT = {
  account: 'devstoreaccount1',
  key: 'Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==',
}

/** Azurite: the emulator of Azure Blob Storage by its vendor. */
export async function startAbs({ tls }: { tls?: TestTls } = {}): Promise<TestStore> {
  const script = await azurite()
  const host = '127.0.0.1'
  const abs = await started('abs', host, async (dir, port) => {
    const url = `${tls === undefined ? 'http' : 'https'}://${host}:${port}/${ACCOUNT.account}`
    const secure = tls === undefined ? [] : ['--oauth', 'basic', ...(await tls.files(dir))]
    return {
      command: process.execPath,
      args: [
        script,
        '--location',
        join(dir, 'data'),
        '--blobHost',
        host,
        '--blobPort',
        String(port),
        '--silent',
        '--skipApiVersionCheck',
        ...secure,
      ],
      url,
      secret: { 'storage-account': ACCOUNT.account, 'storage-key': ACCOUNT.key },
      store: await openAbs({ credentials: ACCOUNT, container: BUCKET, endpoint: url, pageSize: PAGE, ca: tls?.ca }),
    }
  })
  await createContainer(abs.url, tls?.ca)
  return abs
}

/**
 * fake-gcs-server: the emulator of Google Cloud Storage that its client libraries are tested with. It ignores the digest
 * of an upload, so a front refuses damaged uploads, as Google documents.
 */
export async function startGcs(): Promise<TestStore> {
  await using stack = new AsyncDisposableStack()
  const front = stack.use(await startDigestCheck())
  const server = stack.use(await startFakeGcs(front.url))
  front.target = server.url
  const store = await openGcs({
    bucket: BUCKET,
    endpoint: front.url,
    credentials: { accessToken: 'token-of-tests' },
    pageSize: PAGE,
  })
  const held = stack.move()
  return { ...server, store, url: front.url, [Symbol.asyncDispose]: () => held.disposeAsync() }
}

async function startFakeGcs(publicUrl: string): Promise<TestStore> {
  const program = await fakeGcsServer()
  const host = '127.0.0.1'
  return started('gcs', host, async (dir, port) => {
    const data = join(dir, 'data')
    await mkdir(join(data, BUCKET), { recursive: true })
    const url = `http://${host}:${port}`
    return {
      command: program,
      args: [
        '-scheme',
        'http',
        '-host',
        host,
        '-port',
        String(port),
        '-public-host',
        new URL(publicUrl).host,
        '-external-url',
        publicUrl,
        '-backend',
        'filesystem',
        '-filesystem-root',
        data,
      ],
      url,
      secret: { 'access-token': 'token-of-tests' },
      store: await openGcs({
        bucket: BUCKET,
        endpoint: url,
        credentials: { accessToken: 'token-of-tests' },
        pageSize: PAGE,
      }),
    }
  })
}

/**
 * An HTTP proxy that refuses the last part of a resumable upload if the MD5 of all its bytes is not the one of the header
 * x-goog-hash: the object is then not published, and the upload has ended.
 */
async function startDigestCheck(): Promise<{ url: string; target: string } & AsyncDisposable> {
  const front = { target: '' }
  /** The MD5 of the first bytes of an upload, keyed by URL and number of bytes: parts may be sent twice. */
  const digests = new Map<string, Hash>()
  const check = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method = '', url = '', headers } = incoming
    const body = Buffer.concat((await incoming.toArray()) as Buffer[])
    const start = Number(/^bytes (\d+)-/.exec(String(headers['content-range']))?.[1] ?? 0)
    const digest = (digests.get(`${url} ${start}`) ?? createHash('md5')).copy().update(body)
    if (method === 'PUT') digests.set(`${url} ${start + body.length}`, digest)
    const found = `md5=${digest.copy().digest('base64')}`
    const expected = headers['x-goog-hash'] ?? found
    const isRefused = method === 'PUT' && expected !== found
    const sent = isRefused ? { method: 'DELETE' } : { method, headers }
    const onward = request(new URL(url, front.target), sent, (answer) => {
      if (!isRefused) return void answer.pipe(response.writeHead(answer.statusCode ?? 0, answer.headers))
      const message = `Provided ${String(expected)} does not match the calculated ${found}.`
      answer.resume().on('end', () => response.writeHead(400).end(JSON.stringify({ error: { message } })))
    })
    onward.on('error', () => response.destroy())
    onward.end(isRefused ? undefined : body)
  }
  const server = createServer((incoming, response) => void check(incoming, response).catch(() => response.destroy()))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return Object.assign(front, {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  })
}

interface Server extends Pick<TestStore, 'url' | 'store' | 'secret'> {
  command: string
  args: string[]
}

async function started(
  name: string,
  host: string,
  prepare: (dir: string, port: number) => Promise<Server>,
): Promise<TestStore> {
  await using stack = new AsyncDisposableStack()
  const processes = stack.use(await startTestProcesses())
  const [port = 0] = await freePorts(1, [host])
  const { command, args, ...server } = await prepare(processes.dir, port)
  await processes.start({ name, command, args, stopSignal: 'SIGKILL' })
  await processes.waitFor(name, () => answers(server.url), STARTS_WITHIN_MS)
  const held = stack.move()
  return { ...server, processes, [Symbol.asyncDispose]: () => held.disposeAsync() }
}

const answers = (url: string): Promise<boolean> =>
  new Promise((resolve) => {
    const { hostname, port } = new URL(url)
    const socket = connect(Number(port), hostname, () => resolve(true))
    socket.once('error', () => resolve(false)).once('connect', () => socket.destroy())
  })

async function createContainer(account: string, ca: string | undefined): Promise<void> {
  const credential = new StorageSharedKeyCredential(ACCOUNT.account, ACCOUNT.key)
  const pipeline = { retryOptions: {}, tlsOptions: { ca } }
  await new BlobServiceClient(account, credential, pipeline).createContainer(BUCKET)
}
