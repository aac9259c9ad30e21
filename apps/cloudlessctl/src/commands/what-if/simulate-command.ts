import type { Command } from 'commander';
import { create } from '@bufbuild/protobuf';
import {
  SimulateClusterRequestSchema,
  SimulateClusterResponseSchema,
  type SimulateClusterResponse,
} from '@cloudless/api';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import { createUsageFailure } from '../../call/failure.js';
import { withCallFailures } from '../../call/open-session.js';
import type { LocalSession } from '../../call/local-session.js';
import { collectValue } from '../../flags/flag-values.js';
import { addNotes } from '../../help/help-format.js';
import { formatSimulation } from '../../views/simulation-view.js';
import { getTextOption } from '../options.js';
import { readSimulatedChanges, type DescribedChange } from './simulated-changes.js';

/** Limit of the API for the changes of one simulation. */
const MAX_CHANGES = 64;

/** Adds `simulate`. */
export function addSimulateCommand(tree: CommandTree, parent: Command): void {
  const command = tree.addLocalCommand(
    parent,
    'simulate',
    'predict the effect of lost, drained or added nodes and of changed workloads',
    simulate,
    ({ snapshot }) => typeof snapshot === 'string',
  );
  command
    .option(
      '--lose-zone <zone>',
      'lose all nodes of a zone, ZONE or REGION/ZONE (repeatable)',
      collectValue,
    )
    .option('--lose-node <node>', 'lose a node with its replicas (repeatable)', collectValue)
    .option('--drain-node <node>', 'drain a node (repeatable)', collectValue)
    .option(
      '--add-nodes <count=file>',
      'add nodes of a YAML file, or like an existing node with COUNT=like:NODE (repeatable)',
      collectValue,
    )
    .option('--scale <workload=replicas>', 'scale a workload (repeatable)', collectValue)
    .option(
      '--apply <path>',
      'create or update the workloads of a manifest (repeatable)',
      collectValue,
    )
    .option('--delete <workload>', 'delete a workload (repeatable)', collectValue)
    .option('--revision <revision>', 'start from an older revision that is still in the history')
    .option('--snapshot <file>', 'start from a file of "admin snapshot", without a coordinator');
  addNotes(
    command,
    'Changes nothing. All changes take effect together; new replicas are expected to become ready. FLOOR is the number of replicas that serve at the worst moment; "!" marks a floor below min_available (MIN).',
  );
}

async function simulate(invocation: LocalInvocation): Promise<void> {
  const { session } = invocation;
  const snapshot = getTextOption(invocation, 'snapshot');
  const revision = parseRevision(getTextOption(invocation, 'revision'));
  if (snapshot !== undefined && revision !== 0n)
    throw createUsageFailure(
      '--snapshot and --revision exclude each other: a snapshot has one revision',
    );
  const changes = await readChanges(invocation);
  const request = create(SimulateClusterRequestSchema, {
    changes: changes.map(({ change }) => change),
    revision,
  });
  if (snapshot === undefined)
    return withCallFailures(session, async (online) =>
      printSimulation(
        online,
        changes,
        await online.client.simulateCluster(request, online.getCallOptions()),
      ),
    );
  // Loaded on use, because the code of the scheduler and of the controllers is large.
  const { simulateSnapshot } = await import('./simulate-snapshot.js');
  return printSimulation(session, changes, await simulateSnapshot(session, snapshot, request));
}

/** @throws a usage failure for more changes than the API accepts. */
async function readChanges(invocation: LocalInvocation): Promise<readonly DescribedChange[]> {
  const changes = await readSimulatedChanges(invocation);
  if (changes.length <= MAX_CHANGES) return changes;
  throw createUsageFailure(
    `${changes.length} changes are given, and one simulation has at most ${MAX_CHANGES}`,
  );
}

async function printSimulation(
  session: LocalSession,
  changes: readonly DescribedChange[],
  response: SimulateClusterResponse,
): Promise<void> {
  if (session.isStructured)
    return session.printValue(toMessageJson(SimulateClusterResponseSchema, response));
  const descriptions = changes.map(({ description }) => description);
  await session.print(formatSimulation(descriptions, response, session.style));
}

/** @returns 0 without a text. */
function parseRevision(text: string | undefined): bigint {
  if (text === undefined) return 0n;
  if (/^[1-9]\d{0,17}$/.test(text)) return BigInt(text);
  throw createUsageFailure(
    `--revision ${JSON.stringify(text)} is not a revision: expected a whole number above 0`,
  );
}
