import { create } from '@bufbuild/protobuf';
import { SimulatedMoveSchema, type SimulatedMove } from '@cloudless/api';
import type { ReplicaMove } from './replica-moves.js';

/** Most moves in a result. */
const MAX_MOVES = 1_000;

/** The moves of one workload. */
interface WorkloadMoves {
  readonly workload: { readonly namespace: string; readonly name: string };
  readonly moves: readonly ReplicaMove[];
}

/**
 * Builds the API messages of the moves of all workloads, in the order of the workloads, and by node
 * within a workload.
 * @returns The first moves, and their total number.
 */
export function formatMoves(
  workloads: readonly WorkloadMoves[],
  getZone: (nodeId: string) => string,
): { readonly moves: SimulatedMove[]; readonly totalMoves: number } {
  const moves: SimulatedMove[] = [];
  let totalMoves = 0;
  for (const { workload, moves: ofWorkload } of workloads) {
    totalMoves += ofWorkload.length;
    if (moves.length >= MAX_MOVES) continue;
    const sorted = [...ofWorkload].sort((a, b) => compare(toSortKey(a), toSortKey(b)));
    for (const move of sorted.slice(0, MAX_MOVES - moves.length))
      moves.push(formatMove(workload, move, getZone));
  }
  return { moves, totalMoves };
}

function formatMove(
  { namespace, name }: WorkloadMoves['workload'],
  { leaving, arriving }: ReplicaMove,
  getZone: (nodeId: string) => string,
): SimulatedMove {
  const [fromNodeId, toNodeId] = [leaving?.nodeId ?? '', arriving?.nodeId ?? ''];
  return create(SimulatedMoveSchema, {
    namespace,
    name,
    replicaId: leaving?.id ?? '',
    fromNodeId,
    fromZone: fromNodeId === '' ? '' : getZone(fromNodeId),
    toNodeId,
    toZone: toNodeId === '' ? '' : getZone(toNodeId),
  });
}

/** Replicas that leave come first, by node; new replicas follow, by node. */
function toSortKey({ leaving, arriving }: ReplicaMove): string {
  return `${leaving === undefined ? 1 : 0} ${leaving?.nodeId ?? ''} ${arriving?.nodeId ?? ''}`;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
