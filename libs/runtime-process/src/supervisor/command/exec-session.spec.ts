import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { describe, expect, it } from '@jest/globals';
import type { ContainerId } from '@cloudless/base';
import { INPUT_WINDOW_BYTES, type SupervisorMessage } from '../../wire/messages.js';
import type { Supervisor } from '../supervisor.js';
import { ExecSession } from './exec-session.js';

/** Opens a session whose command reads its input only when the test calls `drain`. */
async function open(): Promise<{
  readonly session: ExecSession;
  readonly sent: readonly SupervisorMessage[];
  readonly drain: () => void;
}> {
  const sent: SupervisorMessage[] = [];
  let drain = (): void => undefined;
  const supervisor = {
    exec: async (_: unknown, listener: { readonly onInputDrained: () => void }) => {
      drain = listener.onInputDrained;
      return {
        command: { writeInput: () => false, endInput: () => undefined, abandon: () => undefined },
        release: () => undefined,
      };
    },
  } as unknown as Supervisor;
  const socket = new EventEmitter() as Socket;
  const session = new ExecSession(
    socket,
    supervisor,
    {
      ...{ type: 'exec', id: 4, containerId: 'a'.repeat(64) as ContainerId },
      ...{ command: ['cat'], hasInput: true, windowed: true },
    },
    (message) => sent.push(message),
  );
  await new Promise((resolve) => setImmediate(resolve));
  return { session, sent, drain: () => drain() };
}

describe('ExecSession', () => {
  it('grants the whole window at the start, and read bytes again once 1/8 of the window was read', async () => {
    const { session, sent, drain } = await open();
    const window = { type: 'window', id: 4 };
    expect(sent).toEqual([{ ...window, bytes: INPUT_WINDOW_BYTES }]);
    session.receive('stdin', Buffer.alloc(INPUT_WINDOW_BYTES / 16));
    drain();
    expect(sent).toHaveLength(1);
    session.receive('stdin', Buffer.alloc(INPUT_WINDOW_BYTES / 8));
    drain();
    expect(sent.at(1)).toEqual({ ...window, bytes: (INPUT_WINDOW_BYTES * 3) / 16 });
  });

  it('rejects input when more than 2 MiB wait for the command', async () => {
    const { session } = await open();
    const chunk = Buffer.alloc(1024 * 1024);
    session.receive('stdin', chunk);
    session.receive('stdin', chunk);
    expect(() => session.receive('stdin', Buffer.alloc(1))).toThrow(
      expect.objectContaining({ kind: 'invalid' }),
    );
  });

  it('rejects frames that no client may send, and ignores them after it was closed', async () => {
    const { session } = await open();
    expect(() => session.receive('stdout', Buffer.alloc(0))).toThrow('unexpected frame');
    session.close();
    expect(() => session.receive('stdout', Buffer.alloc(0))).not.toThrow();
  });
});
