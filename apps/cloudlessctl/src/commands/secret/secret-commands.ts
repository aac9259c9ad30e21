import type { Command } from 'commander';
import type { CommandTree } from '../../command-tree.js';
import { collectValue } from '../../flags/flag-values.js';
import { addNotes } from '../../help/help-format.js';
import { addEffectOptions } from '../values/effect-options.js';
import { addValueOptions } from '../values/value-options.js';
import { addListOptions } from '../workload/list-workloads.js';
import { addAccessTokenCommands } from './access-token-commands.js';
import { addAuditCommand } from './audit-secret.js';
import { createSecret, deleteSecrets, updateSecret } from './change-secrets.js';
import { addValueReadOptions } from './read-secret-values.js';
import { rotateMasterKey, showMasterKeys } from './rotate-key.js';
import { describeSecret, getSecrets, listSecrets } from './show-secrets.js';

/** Adds the subcommands of `secret`. */
export function addSecretCommands(tree: CommandTree, parent: Command): void {
  addMetadataOptions(
    addValueOptions(
      tree.addCommand(
        parent,
        'create <secret>',
        'create a secret: values that only permitted replicas and holders of access tokens read',
        createSecret,
      ),
      'secret',
    ),
    ' (default: workload/NAMESPACE.*, every workload of the namespace)',
  );
  addUpdateCommand(tree, parent);
  addListOptions(tree.addCommand(parent, 'list', 'list secrets, without values', listSecrets))
    .option('--prefix <text>', 'only secrets whose names begin with this text')
    .alias('ls');
  addNotes(
    addValueReadOptions(
      tree.addCommand(
        parent,
        'get <secrets...>',
        'show secrets; with an access token, the values of one',
        getSecrets,
      ),
    ),
    'Values are read with an access token and its audience; each read counts as one use. ' +
      'Without an access token, the command shows keys, versions and valid access tokens.',
  );
  tree.addCommand(
    parent,
    'describe <secret>',
    'show keys and versions of a secret, and the workloads and routes that use the secret',
    describeSecret,
  );
  tree
    .addCommand(
      parent,
      'delete <secrets...>',
      'delete secrets that no workload or route uses, with all versions',
      deleteSecrets,
    )
    .option('--revoke-tokens', 'also delete secrets that have valid access tokens')
    .option('-y, --yes', 'answer the question of this command with yes');
  addAccessTokenCommands(
    tree,
    tree.addGroup(parent, 'token', 'create, list, revoke and validate access tokens of secrets'),
  );
  addAuditCommand(tree, parent);
  tree.addCommand(
    parent,
    'key-info',
    'show the master keys that encrypt all secrets, and how far a rotation is',
    showMasterKeys,
  );
  addNotes(
    tree
      .addCommand(
        parent,
        'rotate-key',
        'replace the master key, encrypt all kept versions with the new one, and wait',
        rotateMasterKey,
      )
      .option(
        '--keep-old-keys',
        'keep older versions encrypted with the older master keys, which are kept',
      )
      .option('-y, --yes', 'answer the question of this command with yes'),
    'A rotation that is interrupted continues by itself; the command waits for its end, at most 10m or --timeout. Exit code 4: the coordinator cannot decrypt the master keys; 9: not confirmed, nothing was changed.',
  );
}

function addUpdateCommand(tree: CommandTree, parent: Command): void {
  const command = addMetadataOptions(
    addValueOptions(
      tree.addCommand(
        parent,
        'update <secret>',
        'change values of a secret; workloads that use the secret roll out',
        updateSecret,
      ),
      'secret',
    ),
    ', in place of all audiences',
  )
    .option('--no-expiry', 'the values do not expire')
    .option('--replace', 'remove the keys that are not given')
    .option('--revoke-tokens', 'revoke all access tokens, which else read the new values');
  addNotes(
    addEffectOptions(command),
    'Keys that are not given keep their values. The workloads that change are shown first. On a terminal, the command asks when replicas change. Exit code 9: not confirmed, nothing was changed.',
  );
}

function addMetadataOptions(command: Command, audienceNote: string): Command {
  return command
    .option(
      '--audience <audience>',
      `who may use the values, such as workload/default.web, workload/* or route/default.shop${audienceNote} (repeatable)`,
      collectValue,
    )
    .option('--ttl <duration>', 'time after which the values are no longer given out')
    .option('--expires-at <time>', 'time at which the values are no longer given out')
    .option('--label <key=value>', 'label; key- removes the label (repeatable)', collectValue)
    .option('--immutable', 'refuse later changes of the values');
}
