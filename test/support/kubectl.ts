import { execFile } from 'node:child_process'
import { ensureBinaries, silentProgress } from '#lab'

/** Metrics of kube-apiserver are the longest. */
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024

/** `await kubectl(['get', 'at'], manifest)`: resolves with the standard output, and rejects with the error output. */
export type Kubectl = (args: string[], input?: string | object) => Promise<string>

/** The real kubectl, as whoever the kubeconfig names. Objects go in as JSON, for `-f -`. */
export async function kubectlFor({ kubeconfig }: { kubeconfig: string }): Promise<Kubectl> {
  const path = (await ensureBinaries(['kubectl'], silentProgress))('kubectl')
  const env = { ...process.env, KUBECONFIG: kubeconfig }
  return (args, input = '') =>
    new Promise((resolve, reject) => {
      const child = execFile(path, args, { env, maxBuffer: MAX_OUTPUT_BYTES }, (error, stdout, stderr) => {
        if (error) reject(new Error(stderr || error.message, { cause: error }))
        else resolve(stdout)
      })
      // A program that ends before it has read its input is told by its exit code.
      child.stdin?.on('error', () => undefined)
      child.stdin?.end(typeof input === 'string' ? input : JSON.stringify(input))
    })
}
