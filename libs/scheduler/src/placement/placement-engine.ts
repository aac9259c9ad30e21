import type { WorkloadId } from '@cloudless/base';
import { ChangeLog } from '../columns/change-log.js';
import type { NodeTable } from '../columns/node-table.js';
import type { Slot } from '../columns/value-column.js';
import type { FullRequest } from '../input/request.js';
import { toClaim } from '../reservations/claim.js';
import type { Ledger } from '../reservations/ledger.js';
import type { LedgerGroup } from '../reservations/replica-group.js';
import { WorkloadCounts } from '../reservations/workload-counts.js';
import type { ScoreWeights } from '../scoring/score.js';
import { EXCLUDED, ClassScores } from '../signatures/class-scores.js';
import { NodeMatch } from '../signatures/node-match.js';
import { RequestPlan } from '../signatures/request-plan.js';
import { RequestTerms } from '../signatures/request-terms.js';
import {
  toClassSignature,
  toLabelSignature,
  toSignature,
  withoutWorkload,
} from '../signatures/signature.js';
import { Ranking } from '../trees/ranking.js';
import { countCeiling } from '../trees/spread-ceiling.js';
import { TreeShape } from '../trees/tree-shape.js';
import { WinnerTree } from '../trees/winner-tree.js';
import { BoundedCache } from './bounded-cache.js';
import { EligibleNodes } from './eligible-nodes.js';
import type { Placement } from './placement.js';
import { NodeScan } from './scan.js';

/** Work since the creation of the engine, and what the engine keeps. */
export interface EngineFigures {
  /** Nodes whose score was computed for a decision without a tree. */
  readonly nodesExamined: number;
  /** Scores computed in trees, when they were built and when nodes changed. */
  readonly leavesUpdated: number;
  readonly treesBuilt: number;
  /** Trees copied from one with equal scores. */
  readonly treesCopied: number;
  readonly treesKept: number;
  /** Decisions without a tree. */
  readonly scans: number;
  /** Bytes of trees and other prepared state. */
  readonly cacheBytes: number;
}

/** Bytes of trees kept. A tree takes about 20 bytes per node. */
const MAX_TREE_BYTES = 64 * 1024 ** 2;
const MAX_TREES = 4_096;
/** Trees of workloads without replicas, from which others are copied. */
const MAX_TWINS = 256;
const MAX_TWIN_BYTES = 16 * 1024 ** 2;
/** Bytes of matches between nodes and what requests ask of nodes. */
const MAX_MATCH_BYTES = 32 * 1024 ** 2;
const MAX_MATCHES = 1_024;
const MAX_CLASS_SCORES = 1_024;
/** Bytes of replica counts of workloads whose requests were decided without a tree. */
const MAX_COUNT_BYTES = 32 * 1024 ** 2;
const MAX_COUNTS = 4_096;
/** Refusals kept until the cluster changes: reasons take a look at every filter of every node. */
const MAX_REFUSALS = 256;
/** Topologies with columns and shapes of trees. Beyond the limit, all of them are forgotten. */
const MAX_TOPOLOGIES = 256;
/** Signatures remembered as seen once: the second request with a signature gets a tree. */
const MAX_SEEN = 4_096;
/** Changed slots remembered for trees that catch up. */
const MAX_CHANGED = 65_536;

/** From one change for so many nodes on, a copy of a twin takes less time than catching up. */
const NODES_PER_CHANGE = 8;

/** A tree, and the group of the replicas of its request, held while the tree is kept. */
interface KeptTree {
  readonly tree: WinnerTree;
  readonly group: LedgerGroup;
}

/** A refusal, and the state of the cluster that it speaks about. */
interface Refusal {
  readonly revision: number;
  readonly placement: Placement;
}

/**
 * Decides exactly, with state kept between calls: a winner tree for each request that comes again,
 * and one scan over the columns for each request that comes once.
 */
export class PlacementEngine {
  private readonly changed = new ChangeLog(MAX_CHANGED);
  private readonly trees = new BoundedCache<KeptTree>(
    MAX_TREES,
    MAX_TREE_BYTES,
    ({ tree }) => tree.bytes,
    (kept) => this.dropTree(kept),
  );
  private readonly twins = new BoundedCache<WinnerTree>(MAX_TWINS, MAX_TWIN_BYTES, (t) => t.bytes);
  private readonly matches = new BoundedCache<NodeMatch>(
    MAX_MATCHES,
    MAX_MATCH_BYTES,
    (match) => match.bytes,
  );
  private readonly classScores = new BoundedCache<ClassScores>(MAX_CLASS_SCORES, Infinity, () => 0);
  private readonly shapes = new Map<string, TreeShape>();
  /** Workloads whose counts are kept for scans. */
  private readonly counted = new BoundedCache<WorkloadId>(
    MAX_COUNTS,
    MAX_COUNT_BYTES,
    () => this.table.capacity * 4,
    (workloadId) => this.forgetCounts(workloadId),
  );
  private readonly scan: NodeScan;
  private readonly treesOf = new Map<WorkloadId, number>();
  private readonly seen = new BoundedCache<true>(MAX_SEEN, Infinity, () => 0);
  /** Counts the changes of nodes and reservations. */
  private revision = 0;
  private readonly refusals = new BoundedCache<Refusal>(MAX_REFUSALS, Infinity, () => 0);
  private isStale = false;
  /** The classes on which matches and scores rest. */
  private classes: NodeTable['classes'];
  private noReplicas: WorkloadCounts | undefined;
  private readonly work = {
    leavesUpdated: 0,
    nodesExamined: 0,
    treesBuilt: 0,
    treesCopied: 0,
    scans: 0,
  };

  constructor(
    private readonly table: NodeTable,
    private readonly ledger: Ledger,
    private readonly weights: ScoreWeights,
  ) {
    this.classes = table.classes;
    this.scan = new NodeScan(table);
  }

  /** Notes that a node, or what is reserved on the node, has changed. */
  noteChange(slot: Slot): void {
    this.revision += 1;
    this.changed.push(slot);
  }

  /** Notes that nodes came, went or changed their domains: nothing prepared holds any longer. */
  noteDomainChange(): void {
    this.revision += 1;
    this.isStale = true;
  }

  /** Forgets what was prepared. Once per decision, however many nodes have come before. */
  private reset(): void {
    this.isStale = false;
    if (this.classes !== this.table.classes) {
      this.classes = this.table.classes;
      this.matches.clear();
      this.classScores.clear();
    }
    this.trees.clear();
    this.twins.clear();
    this.shapes.clear();
    this.counted.clear();
    this.noReplicas = undefined;
    this.table.resetColumns();
    this.ledger.resetCounts();
  }

  get figures(): EngineFigures {
    let shapes = 0;
    for (const shape of this.shapes.values()) shapes += shape.bytes;
    return {
      ...this.work,
      treesKept: this.trees.size,
      cacheBytes: this.trees.bytes + this.twins.bytes + this.matches.bytes + shapes,
    };
  }

  /**
   * Decides for `count` replicas, one after the other.
   * @param refuse - Returns the reasons why no node fits; called while the placements before are in
   *   the ledger. No further replica is tried then.
   */
  decide(request: FullRequest, count: number, refuse: () => Placement): Placement[] {
    this.resetIfStale();
    if (count === 0) return [];
    const ofClass = toClassSignature(request);
    const ofLabels = toLabelSignature(request);
    const signature = toSignature(request, ofClass, ofLabels);
    const known = this.trees.get(signature);
    if (known === undefined && count === 1 && this.seen.get(signature) === undefined) {
      this.seen.set(signature, true);
      return [this.decideByScan(request, ofClass, ofLabels) ?? this.refuse(signature, refuse)];
    }
    if (known !== undefined && !this.catchUpByTwin(known.tree)) this.catchUp(known.tree);
    const kept = known ?? this.createTree(request, signature);
    return this.decideByTree(kept, count, (placed) =>
      placed === 0 ? this.refuse(signature, refuse) : refuse(),
    );
  }

  /** Returns the nodes that all filters allow but those over free amounts and host ports. */
  findEligible(request: FullRequest): EligibleNodes {
    this.resetIfStale();
    const ofClass = toClassSignature(request);
    const ofLabels = toLabelSignature(request);
    if (request.spread?.mode === 'required') {
      const plan = this.createPlan(request, ofClass, ofLabels);
      const ranking = new Ranking(this.table, this.countsFor(request.workloadId), request);
      const ceiling = countCeiling(this.table, plan, ranking, request.spread.maxSkew);
      return new EligibleNodes(plan.match, plan.terms, ceiling);
    }
    const match = this.getMatch(request, ofClass, ofLabels);
    match.refresh();
    const terms = new RequestTerms(request, this.ledger.terms);
    return new EligibleNodes(match, terms, undefined, toMatchKey(ofClass, ofLabels));
  }

  /** Returns the replicas of a workload that are not leaving, until the next change of nodes. */
  countReplicas(workloadId: WorkloadId): WorkloadCounts {
    this.resetIfStale();
    return this.countsFor(workloadId);
  }

  private resetIfStale(): void {
    const isFull = this.ledger.terms.isFull || this.table.columns.topologyCount > MAX_TOPOLOGIES;
    if (this.isStale || isFull || this.classes !== this.table.classes) this.reset();
  }

  private catchUp(tree: WinnerTree): void {
    tree.catchUp(this.changed.since(tree.position), this.changed.position);
  }

  /**
   * Brings a tree that is far behind up to date by a twin, which other workloads have kept near.
   * @returns False when the tree is near, or has no twin.
   */
  private catchUpByTwin(tree: WinnerTree): boolean {
    const { plan } = tree;
    const { slots } = this.getShape(plan.request.spread?.topology);
    if ((this.changed.position - tree.position) * NODES_PER_CHANGE < slots.length) return false;
    tree.findRepels();
    if (!plan.terms.haveNoEffect(slots)) return false;
    const twin = this.twins.get(toSignature(withoutWorkload(plan.request)));
    if (twin === undefined) return false;
    this.catchUp(twin);
    if (!twin.plan.terms.isEmpty) return false;
    tree.catchUpFrom(twin, this.changed.position);
    this.work.treesCopied += 1;
    return true;
  }

  private decideByTree(
    { tree, group }: KeptTree,
    count: number,
    refuse: (placed: number) => Placement,
  ): Placement[] {
    const { plan } = tree;
    const decisions: Placement[] = [];
    const tried: Slot[] = [];
    const claim = toClaim(plan.request);
    try {
      while (decisions.length < count) {
        const slot = tree.best();
        if (slot === undefined) {
          // Nothing is placed any more, so the result is the same for all remaining replicas.
          const placed = decisions.length;
          const refusal = this.ledger.showTried(tried, group, claim, () => refuse(placed));
          while (decisions.length < count) decisions.push(refusal);
          break;
        }
        decisions.push(this.toPlacement(plan, slot, tree.scoreOf(slot)));
        if (decisions.length === count) break;
        this.ledger.adjustTried(slot, group, claim, 1);
        tried.push(slot);
        tree.addPlacement(slot);
      }
    } finally {
      for (const slot of tried.reverse()) this.ledger.adjustTried(slot, group, claim, -1);
    }
    return decisions;
  }

  private refuse(signature: string, refuse: () => Placement): Placement {
    const known = this.refusals.get(signature);
    if (known?.revision === this.revision) return known.placement;
    const placement = refuse();
    this.refusals.set(signature, { revision: this.revision, placement });
    return placement;
  }

  private decideByScan(
    request: FullRequest,
    ofClass: string,
    ofLabels: string,
  ): Placement | undefined {
    const plan = this.createPlan(request, ofClass, ofLabels);
    const ranking = new Ranking(this.table, this.countsFor(request.workloadId), request);
    this.work.scans += 1;
    const best = this.scan.findBest(plan, ranking);
    this.work.nodesExamined += best.examined;
    if (best.score === EXCLUDED) return undefined;
    if (request.spread?.mode === 'required') {
      const ceiling = countCeiling(this.table, plan, ranking, request.spread.maxSkew);
      if (ceiling.excludes(best.slot)) return undefined;
    }
    return this.toPlacement(plan, best.slot, best.score);
  }

  private toPlacement(plan: RequestPlan, slot: Slot, score: number): Placement {
    const nodeId = this.table.ids[slot];
    if (nodeId === undefined) throw new Error('a slot with a score has a node');
    return { placed: true, nodeId, score, terms: plan.scoreTerms(slot) };
  }

  private createTree(request: FullRequest, signature: string): KeptTree {
    const group = this.ledger.holdGroup(request);
    const counts = this.ledger.countsOf(request.workloadId);
    if (counts === undefined) throw new Error('the workload of a held group has counts');
    const plan = this.createPlan(request);
    const { slots } = this.getShape(request.spread?.topology);
    const twin = plan.terms.haveNoEffect(slots) ? this.findTwin(request) : undefined;
    const tree = this.buildTree(plan, counts, twin);
    this.treesOf.set(request.workloadId, (this.treesOf.get(request.workloadId) ?? 0) + 1);
    const kept = { tree, group };
    this.trees.set(signature, kept);
    return kept;
  }

  /**
   * Returns a tree of a workload without replicas and terms, for requests that differ in these
   * alone: a copy of such a tree saves the scores of all nodes. The first request with a specification
   * builds its own tree, as there may be no second one.
   */
  private findTwin(request: FullRequest): WinnerTree | undefined {
    const ofAny = withoutWorkload(request);
    const spec = toSignature(ofAny);
    const known = this.twins.get(spec);
    if (known !== undefined) {
      this.catchUp(known);
      return known.plan.terms.isEmpty ? known : undefined;
    }
    if (this.seen.get(spec) === undefined) {
      this.seen.set(spec, true);
      return undefined;
    }
    const plan = this.createPlan(ofAny);
    if (!plan.terms.isEmpty) return undefined;
    const twin = this.buildTree(plan, this.emptyCounts(), undefined);
    this.twins.set(spec, twin);
    return twin;
  }

  private buildTree(
    plan: RequestPlan,
    counts: WorkloadCounts,
    twin: WinnerTree | undefined,
  ): WinnerTree {
    if (twin === undefined) this.work.treesBuilt += 1;
    else this.work.treesCopied += 1;
    const shape = this.getShape(plan.request.spread?.topology);
    const { position } = this.changed;
    return new WinnerTree(plan, this.table, shape, counts, this.work, position, twin);
  }

  private dropTree({ tree, group }: KeptTree): void {
    const { workloadId } = tree.plan.request;
    const left = (this.treesOf.get(workloadId) ?? 1) - 1;
    if (left > 0) this.treesOf.set(workloadId, left);
    else {
      this.treesOf.delete(workloadId);
      this.ledger.forgetCounts(workloadId);
    }
    this.ledger.dropGroup(group);
  }

  private countsFor(workloadId: WorkloadId): WorkloadCounts {
    const counts = this.ledger.countsOf(workloadId);
    if (counts !== undefined) {
      this.counted.getOrCreate(workloadId, () => workloadId);
      return counts;
    }
    return this.emptyCounts();
  }

  private emptyCounts(): WorkloadCounts {
    this.noReplicas ??= new WorkloadCounts(this.table.capacity, this.table.columns.rankedZones);
    return this.noReplicas;
  }

  private forgetCounts(workloadId: WorkloadId): void {
    if (!this.treesOf.has(workloadId)) this.ledger.forgetCounts(workloadId);
  }

  private createPlan(
    request: FullRequest,
    ofClass: string = toClassSignature(request),
    ofLabels: string = toLabelSignature(request),
  ): RequestPlan {
    const match = this.getMatch(request, ofClass, ofLabels);
    return new RequestPlan(request, match, this.weights, this.table, this.ledger);
  }

  private getMatch(request: FullRequest, ofClass: string, ofLabels: string): NodeMatch {
    return this.matches.getOrCreate(toMatchKey(ofClass, ofLabels), () => {
      const classScores = this.classScores.getOrCreate(
        ofClass,
        () => new ClassScores(request, this.weights, this.table.classes),
      );
      return new NodeMatch(this.table, request, classScores);
    });
  }

  private getShape(topology: string | undefined): TreeShape {
    const known = this.shapes.get(topology ?? '');
    if (known !== undefined) return known;
    const shape = new TreeShape(this.table, topology);
    this.shapes.set(topology ?? '', shape);
    return shape;
  }
}

function toMatchKey(ofClass: string, ofLabels: string): string {
  return `${ofClass}\n${ofLabels}`;
}
