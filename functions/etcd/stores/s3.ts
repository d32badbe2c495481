import { randomUUID } from 'node:crypto'
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  S3Client,
  type S3ServiceException,
  UploadPartCommand,
} from '@aws-sdk/client-s3'
import { agentsOf, publish, received, soon, statusOf, TRIES, textOf, UPLOAD, unanswered } from './connection.ts'
import { sendParts } from './parts.ts'
import {
  type Connection,
  type DescribedObject,
  type GetOptions,
  MOST_KEYS,
  type PutOptions,
  rangeHeader,
  type Store,
  type StoredObject,
  StoreError,
  type StoreReason,
  unlessMissing,
} from './types.ts'

/** The credentials of an account, or of a session, which also has a token. */
export interface S3Credentials {
  accessKeyId: string
  secretAccessKey: string
  sessionToken?: string
}

export interface S3Options extends Connection {
  bucket: string
  /** True: the bucket is in the path of the URL, not in its host. Always so for endpoints that are IP addresses. */
  pathStyle?: boolean
  /** Default: that of the environment, which EKS sets, or us-east-1. */
  region?: string
  /** Default: the identity of the pod, by the environment. */
  credentials?: S3Credentials
}

const DEFAULT_REGION = 'us-east-1'

/** A store in S3, or in a service with its REST API. */
export class S3Store implements Store {
  readonly #client: S3Client
  readonly #options: S3Options
  readonly #region: string

  constructor(options: S3Options) {
    this.#options = options
    const { endpoint, pathStyle = false, credentials } = options
    this.#region = options.region ?? process.env['AWS_REGION'] ?? DEFAULT_REGION
    const { http, https } = agentsOf(options.ca)
    this.#client = new S3Client({
      region: this.#region,
      ...(endpoint !== undefined && { endpoint }),
      ...(credentials !== undefined && { credentials }),
      forcePathStyle: pathStyle,
      // The endpoint stays the same; only the region of the signature changes.
      followRegionRedirects: true,
      maxAttempts: TRIES,
      // Ceph, R2 and older MinIO refuse checksum trailers. The signature has the SHA-256 of each part.
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      requestHandler: { httpAgent: http, httpsAgent: https },
    })
  }

  address(key: string): string {
    return `s3://${this.#options.bucket}/${key}`
  }

  async put(key: string, source: AsyncIterable<Uint8Array>, options: PutOptions): Promise<number> {
    const { metadata, ifAbsent = false, signal } = options
    const mark = randomUUID()
    const object = this.#object(key)
    const begin = new CreateMultipartUploadCommand({
      ...object,
      ContentType: 'application/octet-stream',
      Metadata: { ...metadata, [UPLOAD]: mark },
    })
    const begun = await this.#asked(`POST ${this.address(key)} (begin)`, signal, (options) =>
      this.#client.send(begin, options),
    )
    if (begun.UploadId === undefined)
      throw new StoreError('refused', `POST ${this.address(key)}: the answer has no UploadId: is it S3 that answers?`)
    const upload = { ...object, UploadId: begun.UploadId }
    try {
      const parts: { PartNumber: number; ETag: string | undefined }[] = []
      const size = await sendParts(source, signal, async ({ number, bytes }, signals) => {
        const part = new UploadPartCommand({ ...upload, PartNumber: number, Body: bytes })
        const { ETag } = await this.#asked(`PUT ${this.address(key)} (part ${number})`, signals, (options) =>
          this.#client.send(part, options),
        )
        parts[number - 1] = { PartNumber: number, ETag }
      })
      const complete = new CompleteMultipartUploadCommand({
        ...upload,
        MultipartUpload: { Parts: parts },
        ...(ifAbsent && { IfNoneMatch: '*' }),
      })
      const commit = () =>
        this.#asked(`POST ${this.address(key)} (complete)`, signal, (options) => this.#client.send(complete, options))
      await publish(commit, mark, () => this.head(key, soon()))
      return size
    } catch (error) {
      // The parts would be charged until a rule of the bucket removes them. The upload has failed already.
      const abort = new AbortMultipartUploadCommand(upload)
      await this.#client.send(abort, { abortSignal: soon() }).catch(() => undefined)
      throw error
    }
  }

  async *get(key: string, { range, signal }: GetOptions = {}): AsyncGenerator<Uint8Array> {
    const what = `GET ${this.address(key)}`
    const get = new GetObjectCommand({ ...this.#object(key), ...(range && { Range: rangeHeader(range) }) })
    const { Body, ContentLength } = await this.#asked(what, signal, (options) => this.#client.send(get, options))
    if (Body !== undefined) yield* received(Body as AsyncIterable<Uint8Array>, ContentLength, what, signal)
  }

  async *list(prefix: string): AsyncGenerator<StoredObject> {
    const { bucket: Bucket, pageSize: MaxKeys = MOST_KEYS } = this.#options
    for (let token: string | undefined, isFirst = true; isFirst || token !== undefined; isFirst = false) {
      const list = new ListObjectsV2Command({ Bucket, Prefix: prefix, MaxKeys, ContinuationToken: token })
      const page = await this.#asked(`LIST ${this.address(prefix)}`, undefined, (options) =>
        this.#client.send(list, options),
      )
      for (const { Key = '', Size = 0 } of page.Contents ?? []) yield { key: Key, size: Size }
      token = page.IsTruncated === true ? page.NextContinuationToken : undefined
    }
  }

  async head(key: string, signal?: AbortSignal): Promise<DescribedObject | undefined> {
    const head = new HeadObjectCommand(this.#object(key))
    const found = await unlessMissing(
      this.#asked(`HEAD ${this.address(key)}`, signal, (options) => this.#client.send(head, options)),
    )
    return found && { key, size: found.ContentLength ?? 0, metadata: found.Metadata ?? {} }
  }

  async delete(key: string): Promise<void> {
    const remove = new DeleteObjectCommand(this.#object(key))
    await unlessMissing(
      this.#asked(`DELETE ${this.address(key)}`, undefined, (options) => this.#client.send(remove, options)),
    )
  }

  #object(key: string): { Bucket: string; Key: string } {
    return { Bucket: this.#options.bucket, Key: key }
  }

  async #asked<T>(
    what: string,
    signal: AbortSignal | undefined,
    send: (options: { abortSignal?: AbortSignal }) => Promise<T>,
  ): Promise<T> {
    try {
      return await send(signal === undefined ? {} : { abortSignal: signal })
    } catch (error) {
      signal?.throwIfAborted()
      throw this.#errorOf(error, what)
    }
  }

  /** Returns the error of a request, with a fix. An answer to HEAD has no body, so only its status counts. */
  #errorOf(error: unknown, what: string): StoreError {
    const { name = '', message = '', $fault, $metadata } = error as Partial<S3ServiceException>
    const status = $metadata?.httpStatusCode
    if (name === 'CredentialsProviderError' || isOfTokens(error))
      return new StoreError('refused', `${what}: no credentials: ${textOf(error)}: ${ADVICE_ON_IDENTITY}`)
    if (status === undefined) return unanswered(what, error, $metadata?.attempts)
    const isNamed = name !== '' && name !== 'NotFound' && !UNNAMED.test(name)
    const reason = REASONS[name] ?? (status === 404 && !isNamed ? 'missing' : 'refused')
    if ($fault === undefined) return new StoreError(reason, `${what}: ${statusOf(status)}: ${NOT_OF_S3}`)
    const words = [isNamed ? name : '', UNNAMED.test(message) ? '' : message].filter((word) => word !== '')
    const said = words.length === 0 ? statusOf(status) : `${status} ${words.join(' ')}`
    const advice = this.#adviceOn(name, status, error)
    return new StoreError(reason, `${what}: ${said}${advice === undefined ? '' : `: ${advice}`}`)
  }

  #adviceOn(code: string, status: number, error: unknown): string | undefined {
    const { bucket, endpoint, credentials } = this.#options
    const place = `the region is ${this.#region}${endpoint === undefined ? '' : ` and the endpoint ${endpoint}`}`
    switch (code) {
      case 'NoSuchKey':
        return 'there is no such object'
      case 'NoSuchBucket':
        return `create the bucket ${bucket}, or correct the first segment of the path; ${place}`
      case 'PermanentRedirect':
      case 'AuthorizationHeaderMalformed':
      case 'IllegalLocationConstraintException': {
        const { Region: wanted } = error as { Region?: string }
        return `${place}: set region${wanted === undefined ? '' : ` = ${wanted}`} in the key config of the Secret`
      }
      case 'InvalidAccessKeyId':
      case 'SignatureDoesNotMatch':
        return credentials === undefined
          ? ADVICE_ON_IDENTITY
          : 'correct aws_access_key_id and aws_secret_access_key in the key credentials of the Secret'
      case 'ExpiredToken':
      case 'InvalidToken':
        return credentials === undefined
          ? ADVICE_ON_IDENTITY
          : 'renew aws_session_token in the key credentials of the Secret'
      case 'RequestTimeTooSkewed':
        return 'set the clock of the node'
      default:
        return status === 403
          ? 'allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on the objects, and s3:ListBucket on the bucket, without which a missing object is answered with 403'
          : undefined
    }
  }
}

const ADVICE_ON_IDENTITY =
  'name a Secret, or bind the ServiceAccount of the pod to a role of AWS, by the annotation eks.amazonaws.com/role-arn or by EKS Pod Identity'

const NOT_OF_S3 = 'the answer is not one of S3: is it S3 that answers?'

/** The names and messages of the SDK for an error without a code. */
const UNNAMED = /^(Unknown|UnknownError|\d{3}|Error)$/

const REASONS: Record<string, StoreReason> = {
  NoSuchKey: 'missing',
  PreconditionFailed: 'exists',
  ConditionalRequestConflict: 'exists',
}

/** Whether an error is of the service that gives credentials for the token of a ServiceAccount, not of S3. */
const isOfTokens = (error: unknown): boolean =>
  ['AccessDenied', 'InvalidIdentityToken', 'ExpiredTokenException', 'IDPRejectedClaim'].includes(
    (error as Error).name,
  ) && /AssumeRole|identity token|identity provider/i.test((error as Error).message)
