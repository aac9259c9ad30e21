import { create } from '@bufbuild/protobuf';
import { TunnelFrameSchema, type TunnelFrame } from '@cloudless/api';
import { settle } from '@cloudless/base/testing';
import { TunnelInbox } from './tunnel-inbox.js';

const WINDOW_BYTES = 256 * 1024;
const input = (bytes: number): TunnelFrame =>
  create(TunnelFrameSchema, {
    frame: {
      case: 'execInput',
      value: { request: { case: 'stdin', value: new Uint8Array(bytes) } },
    },
  });

describe('TunnelInbox', () => {
  it('rejects a frame before the first window is granted', () => {
    expect(() => new TunnelInbox().put(input(1))).toThrow('exceeds the flow-control window');
  });

  it('grants the window when reading begins, and rejects a frame when the window is used up', async () => {
    const inbox = new TunnelInbox();
    const grants = inbox.grants();
    const granted = grants.next();
    void inbox.read().next();
    expect(await granted).toMatchObject({ value: WINDOW_BYTES });
    for (let sent = 0; sent < WINDOW_BYTES; sent += 64 * 1024) inbox.put(input(64 * 1024));
    expect(() => inbox.put(input(1))).toThrow('exceeds the flow-control window');
    inbox.close();
  });

  it('ignores frames after it is closed', async () => {
    const inbox = new TunnelInbox();
    inbox.close();
    inbox.put(input(1));
    await settle();
    expect(await inbox.read().next()).toMatchObject({ done: true });
  });
});
