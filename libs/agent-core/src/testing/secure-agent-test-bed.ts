import type { CloudlessError } from '@cloudless/base';
import { NodeIdentityKeeper } from '../identity/node-identity-keeper.js';
import { NodeIdentityStore } from '../identity/node-identity-store.js';
import { AgentTestBed } from './agent-test-bed.js';
import { FakeAuthority } from './fake-authority.js';
import { MemoryIdentityFiles } from './memory-identity-files.js';

/** A test bed whose cluster has identities. Identity directory and authority survive restarts. */
export class SecureAgentTestBed extends AgentTestBed {
  readonly files = new MemoryIdentityFiles();
  readonly authority = new FakeAuthority(() => this.clock.wallTime());
  /** Join token of the agent; undefined: none. */
  token: string | undefined = 'token-1';
  /** What the agent reported as the reason why it cannot work. */
  readonly refusals: CloudlessError[] = [];
  /** Addresses to which the agent dialled with its token. */
  readonly joinDials: string[] = [];
  /** While set, dials with a token fail with this error, before the token is sent. */
  joinFailure: Error | undefined;
  joins = 0;
  private opened: NodeIdentityKeeper | undefined;

  get keeper(): NodeIdentityKeeper {
    if (this.opened === undefined) throw new Error('no agent runs');
    return this.opened;
  }

  override async start(): ReturnType<AgentTestBed['start']> {
    const { authority, coordinator } = this;
    coordinator.enrollNode = (request) => authority.enroll(request);
    coordinator.renewNodeCertificate = (request) => authority.renew(request);
    const store = new NodeIdentityStore(this.files, 'cloudless-agent reset');
    this.opened = new NodeIdentityKeeper(store, await store.load(), authority.createRequest);
    this.nodeIdentity = {
      keeper: this.opened,
      readJoinToken: async () => this.token,
      connectToJoin: async (address, _token, signal) => {
        this.joinDials.push(address);
        if (this.joinFailure !== undefined) throw this.joinFailure;
        return coordinator.connect(address, signal);
      },
      onJoined: async () => {
        this.joins += 1;
      },
      onRefused: (reason) => this.refusals.push(reason),
    };
    return super.start();
  }
}
