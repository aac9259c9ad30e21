import type { AgentMessage, CoordinatorMessage } from '@cloudless/api';
import type { LoggedTransaction } from '@cloudless/state-store';
import type { AcknowledgementChecker } from '../checks/acknowledgement-checker.js';
import type { Checker, Commit } from '../checks/commit-checkers.js';
import type { ContainerChecker } from '../checks/container-checker.js';
import { findLateOrder } from '../checks/leadership-checkers.js';
import type { DurableRecords } from '../parts/durable-records.js';
import type { NodeFacts } from '../parts/node-facts.js';
import { describeChange, describeMessage } from './trace-lines.js';
import type { Trace } from './trace.js';

export interface CommitMonitorDeps {
  readonly records: DurableRecords;
  readonly trace: Trace;
  readonly containers: ContainerChecker;
  readonly acknowledgements: AcknowledgementChecker;
  readonly checkers: readonly Checker[];
  /** Checks every commit too, also without node facts. */
  readonly checkNetwork: (commit: Commit, revision: bigint) => void;
  readonly reportViolation: (text: string) => void;
}

/**
 * Applies durable transactions to the records, traces them, and runs every checker on each. Also
 * traces and checks the messages of sessions.
 */
export class CommitMonitor {
  /** Number of checked transactions. */
  count = 0;
  private unchecked: LoggedTransaction[] = [];
  private readonly nodeFacts = new Map<bigint, NodeFacts>();

  constructor(private readonly deps: CommitMonitorDeps) {}

  /** Adds transactions that have become durable; {@link check} checks them. */
  add(transactions: readonly LoggedTransaction[]): void {
    this.unchecked.push(...transactions);
  }

  /** Records the facts about the nodes that the coordinator had when it decided a transaction. */
  recordNodeFacts(revision: bigint, nodeFacts: NodeFacts): void {
    this.nodeFacts.set(revision, nodeFacts);
  }

  /** Checks all transactions that were added since the last call. */
  check(): void {
    if (this.unchecked.length === 0) return;
    for (const transaction of this.unchecked.splice(0)) this.checkTransaction(transaction);
  }

  /**
   * Traces a message between a coordinator and the agent of a node as it is sent, and checks that the
   * leader of the newest committed term sends its orders.
   */
  recordMessage(
    nodeId: string,
    direction: 'up' | 'down',
    message: AgentMessage | CoordinatorMessage,
  ): void {
    const { records, trace, reportViolation } = this.deps;
    const line = describeMessage(nodeId, direction, message);
    if (line !== undefined) trace.add(line.source, line.text);
    const late = findLateOrder(message, records.leaderEpoch);
    if (late !== undefined) reportViolation(late);
  }

  private checkTransaction(transaction: LoggedTransaction): void {
    const { records, trace, containers, acknowledgements, checkers, reportViolation } = this.deps;
    this.count += 1;
    const { revision } = transaction;
    const changes = records.apply(transaction);
    const nodeFacts = this.nodeFacts.get(revision);
    this.nodeFacts.delete(revision);
    for (const change of changes) {
      const text = describeChange(change);
      if (text !== undefined) trace.add('store', `${revision} ${text}`);
    }
    // When the process died before its transaction was acknowledged, the node facts are missing,
    // and the checkers that need node facts are skipped.
    if (nodeFacts !== undefined) {
      for (const check of checkers)
        for (const text of check({ view: records, changes, nodeFacts })) reportViolation(text);
    }
    const commit = { view: records, changes, nodeFacts: nodeFacts ?? UNKNOWN_FACTS };
    containers.checkCommit(commit);
    acknowledgements.recordCommit(commit);
    this.deps.checkNetwork(commit, revision);
  }
}

/** Facts of transactions whose process died before it recorded the facts. */
const UNKNOWN_FACTS: NodeFacts = { alive: new Set(), draining: new Set(), cordoned: new Set() };
