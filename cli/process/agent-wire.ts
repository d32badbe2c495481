import { promisify } from 'node:util'
import { gunzip, gzip } from 'node:zlib'
import { JetStreamError } from '#nats'

/** The subjects between the dispatchers of a hub and the agents of one cluster. */
export const agentSubjects = (prefix: string | undefined) => {
  const root = prefix === undefined ? 'agent' : `${prefix}.agent`
  return {
    /** All agents answer with their session. */
    sessions: `${root}.sessions`,
    /** One agent takes requests. A message without a body asks for its session. */
    requestsTo: (agent: string) => `${root}.requests.${agent}`,
    /** The beginning of the subjects for answers. */
    answers: `${root}.answers`,
  }
}

/** NATS says that nobody listens. */
export const isNobody = (error: unknown): boolean => error instanceof JetStreamError && error.code === 503

/** What an agent tells about itself. */
export interface AgentSession {
  /** Unique to the process. */
  agent: string
  /** Each request has it. Only who receives the answers of the agent knows it. */
  token: string
  /** The agent's clock, in milliseconds. */
  clock: number
}

/** The head of a request. Its body follows. An agent refuses a head with any other field. */
export interface AgentRequest {
  id: string
  token: string
  /** The request is not sent to the API server at this moment of the agent's clock, or later. */
  until: number
  method: string
  /** Path and query. */
  target: string
  /** The user to impersonate. Left out: the agent's own account. */
  as?: string | undefined
  contentType?: string | undefined
  traceparent?: string | undefined
}

/** The head of a message without a body: the dispatcher does not wait for that request any more. */
export interface AgentCancel {
  token: string
  cancel: string
  /** That of the request. */
  until: number
}

/**
 * The head of an answer. The body of the API server's answer follows. `unsent`: the API server has not received the request.
 * `unanswered`: it may have, and has not answered.
 */
export type AgentAnswer =
  | { code: number; retryAfter?: number | undefined }
  | { unsent: string }
  | { unanswered: string }

const WORTH_BYTES = 8 * 1024
/** More than an object of the API server has, and than its answers to reads and writes of one object. */
export const MOST_BYTES = 32 * 2 ** 20

/** Packs a head and a body, and compresses them if they are large. */
export async function packed(head: AgentRequest | AgentCancel | AgentAnswer, body: string): Promise<Buffer> {
  const bytes = Buffer.from(`${JSON.stringify(head)}\n${body}`)
  return bytes.length < WORTH_BYTES ? bytes : promisify(gzip)(bytes, { level: 1 })
}

/** Throws if the message is not packed, or is larger than `most` bytes. */
export async function unpacked(message: Uint8Array, most = MOST_BYTES): Promise<{ head: unknown; body: string }> {
  const isCompressed = message[0] === 0x1f
  const bytes = isCompressed ? await promisify(gunzip)(message, { maxOutputLength: most }) : Buffer.from(message)
  const end = bytes.indexOf('\n')
  if (end === -1) throw new Error('a line with the head is missing')
  return { head: JSON.parse(bytes.subarray(0, end).toString()), body: bytes.subarray(end + 1).toString() }
}

const [MORE, LAST] = [0, 1]

/** Cuts an answer into messages of at most `most` bytes. */
export function* parted(answer: Buffer, most: number): Generator<Buffer> {
  for (let from = 0; from < answer.length; from += most - 1) {
    const part = answer.subarray(from, from + most - 1)
    yield Buffer.concat([Buffer.of(from + part.length < answer.length ? MORE : LAST), part])
  }
}

export const isLastPart = (part: Uint8Array): boolean => part[0] === LAST

export const joined = (parts: readonly Uint8Array[]): Buffer => Buffer.concat(parts.map((part) => part.subarray(1)))
