import type { ClusterState } from '@cloudless/cluster-state';

type LeadershipTerm = Parameters<ClusterState['inTerm']>[0];

/**
 * The part of a coordinator in the election of the leader. A coordinator joins once it serves, or,
 * in a cluster without a certificate authority, before it creates one.
 */
export class ElectionMembership {
  /** The leadership of this coordinator; undefined while it follows. */
  term: LeadershipTerm | undefined;
  private election: ReturnType<ClusterState['joinElection']> | undefined;
  private hasLeft = false;

  constructor(
    private readonly state: Pick<ClusterState, 'joinElection' | 'onRoleChange'>,
    private readonly identity: Parameters<ClusterState['joinElection']>[0],
  ) {
    state.onRoleChange((change) => {
      this.term = change.role === 'leader' ? change.term : undefined;
    });
  }

  /** Takes part in the election from now on. A second call has no effect. */
  join(): void {
    if (!this.hasLeft) this.election ??= this.state.joinElection(this.identity);
  }

  /** As `LeaderElection.stepDown`. */
  async stepDown(): Promise<boolean> {
    return (await this.election?.stepDown()) ?? false;
  }

  /** Steps down, and does not stand for election again. */
  async leave(): Promise<void> {
    this.hasLeft = true;
    await this.election?.close();
  }
}
