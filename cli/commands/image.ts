import type { Command } from 'commander'
import type { ImageCommandOptions } from '../actions/image.ts'
import { type CommandContext, collect } from '../options.ts'

const EPILOGUE = `
The reference of the pushed image, by its digest, is all that is printed. Credentials are those of docker login and podman login.
Nothing is run, so that no container engine is needed: package.json, the dependencies as they are installed here, and the
functions are put on top of the base. Linked packages are packed as npm pack does it (files, .npmignore). Files whose names are those of
credentials (.env*, .npmrc, kubeconfig, *.pem, *.key, id_rsa …) are left out, unless --include names the file.
`

export function imageCommand(program: Command, { print }: CommandContext): void {
  program
    .command('image')
    .description('make an image of the functions of a project, without a container engine')
    .argument('[folder]', 'of the project', '.')
    .option('--push <reference>', 'store it in a registry, e.g. registry.example.com/team/my-operator:1')
    .option('--output <file>', 'store it as an OCI archive')
    .option(
      '--base <reference>',
      'with Node.js, by digest; or an OCI layout or archive (default: distroless, Node.js 24)',
    )
    .option('--include <path>', 'of the project, that the functions need; may be repeated (default: src)', collect, [])
    .option('--add <file:path>', 'another file, e.g. bin/helm-{arch}:/usr/local/bin/helm; may be repeated', collect, [])
    .option('--platform <list>', 'with commas between', 'linux/amd64,linux/arm64')
    .option('--label <key=value>', 'of the image; may be repeated', collect, [])
    .option('--start <arguments>', 'of fairlead, where a pod gives none, e.g. "serve -f src/index.ts"')
    .option('--sbom <file>', 'write the bill of materials (SPDX) there too')
    .option('--bundle', 'the folder is a bundle for OLM, by generate bundle: its files alone, without a base', false)
    .option('--list', 'print the paths of all files that are packed, and make nothing', false)
    .option('--plain-http', 'talk to registries without TLS; those of this machine are talked to so anyway', false)
    .addHelpText('after', EPILOGUE)
    .action(async (folder: string, options: ImageCommandOptions) => {
      const { image } = await import('../actions/image.ts')
      await image(folder, options, print)
    })
}
