import { type BinaryName, binaries } from './binaries.ts'
import { isPackagePath } from './go-toolchain.ts'

/** Returns the seconds of a first build of these programs on two cores. */
export const secondsOf = (names: readonly BinaryName[]): number =>
  names.reduce((sum, name) => sum + binaries[name].seconds, 0)

/** Returns the number of packages that `go build -v` prints for these programs, without the standard library. */
const packagesOf = (names: readonly BinaryName[]): number =>
  names.reduce((sum, name) => sum + binaries[name].packages, 0)

/** The linker's share of the build time. It runs after the last package. */
const LINKING = 0.12

/**
 * Share of packages, and share of the build time at that point. At the beginning, Go fetches modules and compiles the
 * standard library. Measured on two cores with the programs of the demo.
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

/** Returns the elapsed share of the build time, 0 to 1. */
export function timeShare(byPackages: number): number {
  const next = Math.max(
    1,
    PACE.findIndex(([packages]) => packages >= byPackages),
  )
  const [[fromPackages, fromTime] = [0, 0], [toPackages, toTime] = [1, 1]] = PACE.slice(next - 1, next + 1)
  return fromTime + ((byPackages - fromPackages) / (toPackages - fromPackages)) * (toTime - fromTime)
}

/** Measures the progress of a build from the packages that the compiler has printed. */
export class BuildShares {
  readonly #total: number
  readonly #reached: (share: number) => void
  /** Seconds of finished work by module, in measured build times. */
  readonly #done = new Map<string, number>()

  constructor(names: readonly BinaryName[], reached: (share: number) => void) {
    this.#total = secondsOf(names)
    this.#reached = reached
  }

  /** Receives the lines of `go build -v` of these programs, which belong to one module. */
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

/** Packages of the standard library have no host as the first part of their path. */
const isPackage = (line: string): boolean => isPackagePath(line) && /^[\w-]+\./.test(line)
