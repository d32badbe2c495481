import { isDeepStrictEqual } from 'node:util'
import { isRecord } from '#contracts'
import { type Fields, shownIn, VERSIONS, type Version } from './pages.ts'

/** Milliseconds, by one clock. */
interface Period {
  from: number
  to: number
}

export interface Refusal extends Period {
  because: string
}

/** What was done to whom. `mayRefuse`: a write that comes then may be refused, and is sent again. */
export interface Fault extends Period {
  title: string
  mayRefuse: boolean
}

/** What there is when all is quiet. */
export interface Found {
  wanted: ReadonlyMap<string, Fields>
  /** By name, what each version shows. */
  shown: Record<Version, ReadonlyMap<string, { spec: unknown; label?: string }>>
  /** Objects that are shown in part. */
  partial: readonly string[]
  storedVersions: readonly string[]
  refusals: readonly Refusal[]
  faults: readonly Fault[]
}

/** Fields that were lost or changed, and writes that were refused without a reason. */
export function wrongIn({ wanted, shown, partial, storedVersions, refusals, faults }: Found): string[] {
  const wrong: string[] = []
  for (const version of VERSIONS) {
    for (const [name, fields] of wanted) {
      const found = shown[version].get(name)
      if (found === undefined) wrong.push(`${name} is not there in ${version}`)
      else wrong.push(...differences(`${name} in ${version}: `, found, shownIn(version, fields)))
    }
    for (const name of shown[version].keys())
      if (!wanted.has(name)) wrong.push(`${name} is there in ${version}, and nobody has made it`)
  }
  wrong.push(...partial.map((name) => `${name} is shown in part`))
  if (storedVersions.join() !== 'v1') wrong.push(`objects may be stored as ${storedVersions.join(', ')}`)
  const isExcused = (one: Refusal) =>
    faults.some(({ mayRefuse, from, to }) => mayRefuse && one.from <= to && one.to >= from)
  return [...wrong, ...refusals.filter((one) => !isExcused(one)).map(({ because }) => `refused: ${because}`)]
}

/** Each field that is not as wanted. */
export function differences(path: string, found: unknown, wanted: unknown): string[] {
  if (isDeepStrictEqual(found, wanted)) return []
  if (!isRecord(found) || !isRecord(wanted))
    return [`${path} is ${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`]
  const names = [...new Set([...Object.keys(found), ...Object.keys(wanted)])]
  return names.flatMap((name) => differences(`${path}.${name}`, found[name], wanted[name]))
}
