import { readFileSync, writeFileSync } from 'node:fs'

/** CPU time of a process so far, milliseconds. Linux counts it in hundredths of a second. */
export function cpuMsOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
  return 10 * (Number(fields[11]) + Number(fields[12]))
}

/** What a process has in memory. */
export const residentMiBOf = (pid: number): number => mibOf(pid, 'VmRSS')

/** The most that it has had there since its start, or since forgetPeakOf(). */
export const peakMiBOf = (pid: number): number => mibOf(pid, 'VmHWM')

export const forgetPeakOf = (pid: number): void => writeFileSync(`/proc/${pid}/clear_refs`, '5')

const mibOf = (pid: number, field: string): number =>
  Number(new RegExp(`${field}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024
