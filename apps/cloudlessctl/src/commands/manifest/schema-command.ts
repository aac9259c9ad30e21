import type { Command } from 'commander';
import { manifestSchema } from '@cloudless/api/manifest-schema';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';

/** Adds `schema`. */
export function addSchemaCommand(tree: CommandTree, parent: Command): void {
  tree.addOfflineCommand(
    parent,
    'schema',
    'print the JSON Schema of manifests, for editors',
    printSchema,
  );
}

/** Prints the JSON Schema of manifests. Editors read the schema as JSON, whatever `--output` is. */
async function printSchema({ session }: LocalInvocation): Promise<void> {
  await session.print(`${JSON.stringify(manifestSchema, undefined, 2)}\n`);
}
