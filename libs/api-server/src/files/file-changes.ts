import {
  holdsResources,
  listFileRefs,
  type ClusterState,
  type FileKind,
  type RecordChange,
} from '@cloudless/cluster-state';

/** Sends messages to the agents that are connected. */
export interface FilesChangedSender {
  /** Notifies the agent of a node that files of a replica have a new version. */
  sendFilesChanged(nodeId: string, replicaId: string): void;
}

/**
 * Notifies the agents of new versions of secrets and configs that running replicas get without a
 * restart. A message may be lost: agents ask for all versions at the start of each session.
 */
export class FileChanges {
  private readonly unsubscribe: () => void;

  constructor(
    private readonly state: ClusterState,
    private readonly sender: FilesChangedSender,
  ) {
    this.unsubscribe = state.subscribe((changes) => this.handle(changes));
  }

  close(): void {
    this.unsubscribe();
  }

  private handle(changes: readonly RecordChange[]): void {
    for (const change of changes) {
      if (change.kind !== 'config' && change.kind !== 'secret') continue;
      if (change.after === undefined || change.before?.version === change.after.version) continue;
      this.notify(change.kind === 'config' ? 'configs' : 'secrets', change.after);
    }
  }

  private notify(
    kind: FileKind,
    { namespace, name }: { readonly namespace: string; readonly name: string },
  ): void {
    const view = this.state.view();
    for (const { value: workload } of view.workloads()) {
      if (workload.namespace !== namespace) continue;
      // By the version of each replica: the newest spec may use the object in another way.
      const isUser = new Map<number, boolean>();
      for (const { version, template } of view.versions(workload.uid))
        isUser.set(
          version,
          template !== undefined &&
            listFileRefs(template).some(
              (known) => known.kind === kind && known.ref.name === name && known.ref.version === 0,
            ),
        );
      if (![...isUser.values()].includes(true)) continue;
      for (const { value: replica } of view.replicasOf(workload.uid))
        if (holdsResources(replica) && isUser.get(replica.version) === true)
          this.sender.sendFilesChanged(replica.nodeId, replica.id);
    }
  }
}
