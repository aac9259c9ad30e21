import type { Command } from 'commander';
import type { ProposeMovesResponse, ProposedMove } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { addNotes } from '../../help/help-format.js';
import { formatProposedMoves } from '../../views/proposed-moves-view.js';
import { getTextOption } from '../options.js';
import { addChangeOptions, handlePreviewOptions } from '../plan/plan-options.js';
import { NO_OBJECT_CHANGES } from '../plan/show-changes.js';
import type { ChangeInit } from '../plan/predict-changes.js';
import { applyChanges } from '../workload/apply-changes.js';

/** Limit of the API for the moves of one proposal. */
const MAX_MOVES = 256;
/** Limit of the API for the replicas of one change. */
const MAX_REPLICAS = 64;

/** Adds `rebalance`. */
export function addRebalanceCommand(tree: CommandTree, parent: Command): void {
  const command = tree.addCommand(
    parent,
    'rebalance',
    'move replicas so that workloads spread evenly over zones and nodes',
    rebalance,
  );
  addChangeOptions(command)
    .option('--max-moves <number>', 'maximum number of moves, 1 to 256 (default: 16)')
    .option('--wait', 'wait until the moves are complete, at most 10m or --timeout');
  addNotes(
    command,
    'A replica stops only while min_available replicas of the workload stay: when its replacement is ready, or before, with max_surge 0 and where min_available is below the number of replicas. Replicas that cannot move within 10 minutes stay where they are. GAIN is the difference between the numbers of replicas in the two places. With --namespace, only workloads of this namespace move.',
  );
}

async function rebalance(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const proposal = await session.client.proposeMoves(
    {
      maxMoves: parseMaxMoves(getTextOption(invocation, 'maxMoves')),
      namespace: session.settings.namespaceGiven ? session.settings.namespace : '',
    },
    session.getCallOptions(),
  );
  await printProposal(invocation, proposal);
  if (proposal.moves.length === 0) return;
  const changes = toChanges(proposal.moves);
  if (await handlePreviewOptions(invocation, () => changes)) return;
  await applyChanges(invocation, { ...NO_OBJECT_CHANGES, workloads: changes });
}

async function printProposal(
  { session }: Invocation,
  proposal: ProposeMovesResponse,
): Promise<void> {
  if (proposal.moves.length === 0) return session.printNotice(describeNoMoves(proposal));
  if (session.isStructured) return;
  await session.print(`${formatProposedMoves(proposal, session.style)}\n`);
}

function describeNoMoves({ notExamined }: ProposeMovesResponse): string {
  const text = 'nothing to move: no move makes the spread of a workload more even';
  if (notExamined === 0) return text;
  return `${text}; ${notExamined} workloads were not examined completely, repeat with --namespace`;
}

/** Returns one change for each workload. */
function toChanges(moves: readonly ProposedMove[]): readonly ChangeInit[] {
  const idsByWorkload = new Map<string, { readonly move: ProposedMove; readonly ids: string[] }>();
  for (const move of moves) {
    const key = `${move.namespace}/${move.name}`;
    const group = idsByWorkload.get(key) ?? { move, ids: [] };
    // Moves beyond the limit are left for the next run of the command.
    if (group.ids.length < MAX_REPLICAS) group.ids.push(move.replicaId);
    idsByWorkload.set(key, group);
  }
  return [...idsByWorkload.values()].map(({ move: { namespace, name }, ids }) => ({
    change: { case: 'evict', value: { namespace, name, replicaIds: ids } },
  }));
}

/** @returns 0, the default of the API, without a text. */
function parseMaxMoves(text: string | undefined): number {
  if (text === undefined) return 0;
  const number = /^\d{1,3}$/.test(text) ? Number(text) : 0;
  if (number >= 1 && number <= MAX_MOVES) return number;
  throw createUsageFailure(
    `--max-moves ${JSON.stringify(text)}: expected a whole number from 1 to ${MAX_MOVES}`,
  );
}
