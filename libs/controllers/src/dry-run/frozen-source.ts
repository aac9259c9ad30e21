import type {
  ControlRecord,
  NodeRecord,
  ReplicaRecord,
  VersionRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import type { ClusterState, ClusterView, RecordChange, Stored } from '@cloudless/cluster-state';
import type { FrozenReadiness, ReadinessTracker } from '../rollout/readiness-tracker.js';
import type { SimulationSource, SimulationView } from './simulation-source.js';

/** The running state that a {@link FrozenSource} is taken from. */
export interface LiveSource extends Omit<SimulationSource, 'view' | 'readiness'> {
  readonly state: Pick<ClusterState, 'view' | 'subscribe'>;
  readonly readiness: Pick<ReadinessTracker, 'freeze'>;
}

/**
 * The state of the cluster at the moment of the creation: its records, the liveness of its nodes,
 * the readiness of its replicas and the time. The records are not copied: while changes are
 * committed, the source keeps the former records, so that a simulation in slices sees one revision.
 * The scheduler's model is the running one: copy the model before the next turn of the event loop.
 * Close the source after use.
 */
export class FrozenSource implements SimulationSource {
  readonly view: SimulationView;
  readonly nodes: SimulationSource['nodes'];
  readonly readiness: SimulationSource['readiness'];
  readonly cluster: SimulationSource['cluster'];
  readonly clock: SimulationSource['clock'];
  private readonly frozenReadiness: FrozenReadiness;
  private readonly unsubscribe: () => void;

  constructor(live: LiveSource) {
    const view = new FrozenView(live.state.view());
    this.view = view;
    this.unsubscribe = live.state.subscribe((changes) => view.keepFormer(changes));
    const nowMs = live.clock.wallTime();
    this.clock = { wallTime: () => nowMs };
    this.cluster = live.cluster;
    const ids = [...view.nodes()].map(({ value }) => value.id);
    const alive = new Set(ids.filter((id) => live.nodes.isAlive(id)));
    const statuses = new Map(ids.map((id) => [id, live.nodes.status(id)]));
    this.nodes = {
      isAlive: (id) => alive.has(id),
      status: (id) => statuses.get(id) ?? live.nodes.status(id),
    };
    this.frozenReadiness = live.readiness.freeze((id) => alive.has(id));
    this.readiness = this.frozenReadiness;
  }

  close(): void {
    this.unsubscribe();
    this.frozenReadiness.close();
  }
}

/** A record as of the moment of the view; `undefined` when there was none. */
type Former<Value> = Map<string, Value | undefined>;

/** A view that does not change: the former record of each changed record hides the newer record. */
class FrozenView implements SimulationView {
  readonly revision: bigint;
  private readonly allNodes: readonly Stored<NodeRecord>[];
  private readonly allWorkloads: readonly Stored<WorkloadRecord>[];
  private readonly allUnplaced: readonly Stored<ReplicaRecord>[];
  private readonly formerWorkloads: Former<WorkloadRecord> = new Map();
  private readonly formerControls: Former<ControlRecord> = new Map();
  private readonly formerNodes: Former<NodeRecord> = new Map();
  private readonly formerReplicas: Former<ReplicaRecord> = new Map();
  /** Former versions by uid, then by number. */
  private readonly formerVersions = new Map<string, Map<number, VersionRecord | undefined>>();

  constructor(private readonly live: ClusterView) {
    this.revision = live.revision;
    this.allNodes = [...live.nodes()];
    this.allWorkloads = [...live.workloads()];
    this.allUnplaced = [...live.unplaced()];
  }

  /** Keeps the records before these changes, unless earlier changes have replaced them. */
  keepFormer(changes: readonly RecordChange[]): void {
    for (const change of changes) {
      switch (change.kind) {
        case 'workload':
          keepFirst(this.formerWorkloads, change.id, change.before);
          break;
        case 'control':
          keepFirst(this.formerControls, change.id, change.before);
          break;
        case 'node':
          keepFirst(this.formerNodes, change.id, change.before);
          break;
        case 'replica': {
          const id = (change.before ?? change.after)?.id;
          if (id !== undefined) keepFirst(this.formerReplicas, id, change.before);
          break;
        }
        case 'version':
          this.keepVersion(change.id, change.before);
          break;
        default:
      }
    }
  }

  workload(uid: string): Stored<WorkloadRecord> | undefined {
    return this.find(this.formerWorkloads, uid, () => this.live.workload(uid));
  }

  control(uid: string): Stored<ControlRecord> | undefined {
    return this.find(this.formerControls, uid, () => this.live.control(uid));
  }

  node(id: string): Stored<NodeRecord> | undefined {
    return this.find(this.formerNodes, id, () => this.live.node(id));
  }

  version(uid: string, version: number): VersionRecord | undefined {
    const former = this.formerVersions.get(uid);
    return former?.has(version) === true ? former.get(version) : this.live.version(uid, version);
  }

  versions(uid: string): readonly VersionRecord[] {
    const former = this.formerVersions.get(uid);
    if (former === undefined) return this.live.versions(uid);
    const unchanged = this.live.versions(uid).filter(({ version }) => !former.has(version));
    return [...unchanged, ...former.values()]
      .filter((record) => record !== undefined)
      .sort((a, b) => a.version - b.version);
  }

  /** The live config: versions of secrets and configs decide nothing about placements. */
  config(key: string): ReturnType<ClusterView['config']> {
    return this.live.config(key);
  }

  secret(key: string): ReturnType<ClusterView['secret']> {
    return this.live.secret(key);
  }

  filesUse(namespace: string): ReturnType<ClusterView['filesUse']> {
    return this.live.filesUse(namespace);
  }

  filesGuard(namespace: string): ReturnType<ClusterView['filesGuard']> {
    return this.live.filesGuard(namespace);
  }

  workloads(): Iterable<Stored<WorkloadRecord>> {
    return this.allWorkloads;
  }

  nodes(): Iterable<Stored<NodeRecord>> {
    return this.allNodes;
  }

  unplaced(): Iterable<Stored<ReplicaRecord>> {
    return this.allUnplaced;
  }

  replicasOf(uid: string): Iterable<Stored<ReplicaRecord>> {
    return this.listReplicas(this.live.replicasOf(uid), (replica) => replica.uid === uid);
  }

  replicasOn(nodeId: string): Iterable<Stored<ReplicaRecord>> {
    return this.listReplicas(this.live.replicasOn(nodeId), (replica) => replica.nodeId === nodeId);
  }

  private keepVersion(id: string, before: VersionRecord | undefined): void {
    const [uid = '', number = ''] = id.split('/');
    const former = this.formerVersions.get(uid) ?? new Map<number, VersionRecord | undefined>();
    if (!former.has(Number(number))) former.set(Number(number), before);
    this.formerVersions.set(uid, former);
  }

  private find<Value>(
    former: Former<Value>,
    id: string,
    findLive: () => Stored<Value> | undefined,
  ): Stored<Value> | undefined {
    if (!former.has(id)) return findLive();
    const value = former.get(id);
    return value === undefined ? undefined : this.toStored(value);
  }

  private listReplicas(
    live: Iterable<Stored<ReplicaRecord>>,
    belongs: (replica: ReplicaRecord) => boolean,
  ): readonly Stored<ReplicaRecord>[] {
    if (this.formerReplicas.size === 0) return [...live];
    const replicas = [...live].filter(({ value }) => !this.formerReplicas.has(value.id));
    for (const former of this.formerReplicas.values())
      if (former !== undefined && belongs(former)) replicas.push(this.toStored(former));
    return replicas;
  }

  private toStored<Value>(value: Value): Stored<Value> {
    return { value, revision: this.revision };
  }
}

function keepFirst<Value>(former: Former<Value>, id: string, before: Value | undefined): void {
  if (!former.has(id)) former.set(id, before);
}
