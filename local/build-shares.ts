import { type BinaryName, binaries } from './binaries.ts'
import { isPackagePath } from './go-toolchain.ts'

/** Seconds that a first build of these takes on two cores. */
export const secondsOf = (names: readonly BinaryName[]): number =>
  names.reduce((sum, name) => sum + binaries[name].seconds, 0)

/** Packages that `go build -v` names while it compiles these, but for those of the standard library. */
const packagesOf = (names: readonly BinaryName[]): number =>
  names.reduce((sum, name) => sum + binaries[name].packages, 0)

/** The linker writes a program after the last of its packages: that is this share of a build. */
const LINKING = 0.12

/**
 * Shares of a first build by packages, and of its time: at first modules are fetched, and the standard library is compiled. Both as
 * they were seen on two cores, for the programs of the demo.
 */
const PACE: [byPackages: number, byTime: number][] = [
  [0, 0],
  [0.02, 0.1],
  [0.08, 0.17],
  [0.14, 0.25],
  [0.28, 0.4],
  [0.43, 0.56],
  [0.57, 0.63],
  [0.74, 0.79],
  [0.88, 0.94],
  [1, 1],
]

/** The share of the time that has gone, 0 to 1. */
export function timeShare(byPackages: number): number {
  const next = Math.max(
    1,
    PACE.findIndex(([packages]) => packages >= byPackages),
  )
  const [[fromPackages, fromTime] = [0, 0], [toPackages, toTime] = [1, 1]] = PACE.slice(next - 1, next + 1)
  return fromTime + ((byPackages - fromPackages) / (toPackages - fromPackages)) * (toTime - fromTime)
}

/** How much of a build is done, by what the compilers have named so far. */
export class BuildShares {
  readonly #total: number
  readonly #reached: (share: number) => void
  /** Seconds, as they were measured, of what each module has done. */
  readonly #done = new Map<string, number>()

  constructor(names: readonly BinaryName[], reached: (share: number) => void) {
    this.#total = secondsOf(names)
    this.#reached = reached
  }

  /** For the lines of `go build -v` of these programs, which are of one module. */
  of(names: readonly BinaryName[]): { line(text: string): void; done(): void } {
    const [seconds, packages, key] = [secondsOf(names), packagesOf(names), names.join()]
    let compiled = 0
    const set = (share: number): void => {
      this.#done.set(key, share * seconds)
      const sum = [...this.#done.values()].reduce((total, one) => total + one, 0)
      this.#reached(timeShare(Math.min(1, sum / this.#total)))
    }
    return {
      line(text) {
        if (!isPackage(text)) return
        compiled += 1
        set(Math.min(1, compiled / packages) * (1 - LINKING))
      },
      done: () => set(1),
    }
  }
}

/** Not of the standard library: the first part of its path is a host. */
const isPackage = (line: string): boolean => isPackagePath(line) && /^[\w-]+\./.test(line)
