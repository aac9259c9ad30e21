import { basename, dirname, join } from 'node:path/posix';
import type { Command } from 'commander';
import { errorCodeOf } from '@cloudless/base';
import { manifestSchema } from '@cloudless/api/manifest-schema';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import type { Files } from '../../io/io.js';
import { DNS_LABEL_RULE, isDnsLabel } from '../../dns-label.js';
import { createFirstManifest } from '../../manifest/first-manifest.js';
import { getCommandAfterSeparator, getTextOption, hasFlag } from '../options.js';

const DEFAULT_FILE = 'web.yaml';
/** Name of the schema file beside the manifest. */
const SCHEMA_FILE = 'cloudless.schema.json';

/** Adds `init`, which writes a first manifest with comments. */
export function addInitCommand(tree: CommandTree, parent: Command): void {
  tree
    .addOfflineCommand(
      parent,
      'init [file] [command...]',
      'write a first manifest with comments; a command may follow --',
      initManifest,
    )
    .option('--name <name>', 'name of the workload (default: the name of the file)')
    .option('--image <image>', 'image of the containers (default: nginx:alpine)')
    .option('--schema', `write the JSON Schema beside the manifest, as ${SCHEMA_FILE}`)
    .option('--force', 'replace an existing file');
}

async function initManifest(invocation: LocalInvocation): Promise<void> {
  const { session, operands } = invocation;
  const file = operands[0] ?? DEFAULT_FILE;
  const command = getCommandAfterSeparator(
    invocation,
    1,
    'cloudlessctl init web.yaml -- node server.mjs',
  );
  const image = getTextOption(invocation, 'image');
  const hasSchema = hasFlag(invocation, 'schema');
  const text = createFirstManifest({
    name: getName(invocation, file),
    image: image ?? (command.length === 0 ? 'nginx:alpine' : undefined),
    command,
    schemaFile: hasSchema ? `./${SCHEMA_FILE}` : undefined,
  });
  if (file === '-') {
    if (hasSchema) throw createUsageFailure('--schema needs a file; use: cloudlessctl schema');
    return session.print(text);
  }
  const { files } = session.io;
  if (!hasFlag(invocation, 'force') && (await exists(files, file)))
    throw createUsageFailure(`${file} exists already; choose another file, or use --force`);
  await files.write(file, text);
  await session.printNotice(`${file} written`);
  if (hasSchema) {
    const schemaFile = join(dirname(file), SCHEMA_FILE);
    await files.write(schemaFile, `${JSON.stringify(manifestSchema, undefined, 2)}\n`);
    await session.printNotice(`${schemaFile} written`);
  }
  await session.printNotice(`next: cloudlessctl apply -f ${file}`);
}

/** Returns `--name`, or the file name without its extension. */
function getName(invocation: LocalInvocation, file: string): string {
  const given = getTextOption(invocation, 'name');
  const name = given ?? (file === '-' ? 'web' : basename(file).replace(/\.[^.]*$/, ''));
  if (isDnsLabel(name)) return name;
  const what =
    given === undefined
      ? `the name of the file gives the name ${JSON.stringify(name)}`
      : `--name ${JSON.stringify(name)}`;
  throw createUsageFailure(
    `${what}: expected ${DNS_LABEL_RULE}${given === undefined ? '; set --name' : ''}`,
  );
}

async function exists(files: Files, path: string): Promise<boolean> {
  try {
    await files.list(path);
    return true;
  } catch (reason) {
    if (errorCodeOf(reason) === 'ENOENT') return false;
    throw createUsageFailure(
      `${path}: ${reason instanceof Error ? reason.message : String(reason)}`,
    );
  }
}
