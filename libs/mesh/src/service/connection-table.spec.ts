import { ConnectionTable, type CarriedConnection } from './connection-table.js';

class TestConnection implements CarriedConnection {
  readonly endpointId = 'default/web/r1';
  readonly replicaId = 'r1';
  readonly nodeId = 'a';
  carriedBytes = 0;
  reason: string | undefined;

  constructor(readonly idleTimeoutMs: number) {}

  reset(reason: string): void {
    this.reason = reason;
  }
}

describe('the idle timeout of connections', () => {
  const begin = (idleTimeoutMs: number) => {
    const table = new ConnectionTable();
    const connection = new TestConnection(idleTimeoutMs);
    table.add(connection, 0);
    return { table, connection };
  };

  it('ends a connection that carried nothing for as long', () => {
    const { table, connection } = begin(60_000);
    table.endIdle(59_999);
    expect(connection.reason).toBeUndefined();
    table.endIdle(60_000);
    expect(connection.reason).toBe('the idle timeout of the service has passed');
  });

  it('begins again with each byte', () => {
    const { table, connection } = begin(60_000);
    for (let nowMs = 50_000; nowMs <= 500_000; nowMs += 50_000) {
      connection.carriedBytes += 1;
      table.endIdle(nowMs);
    }
    expect(connection.reason).toBeUndefined();
    table.endIdle(560_000);
    expect(connection.reason).toBeDefined();
  });

  it('of 0 never ends a connection', () => {
    const { table, connection } = begin(0);
    table.endIdle(365 * 86_400_000);
    expect(connection.reason).toBeUndefined();
  });

  it('forgets a connection that has ended', () => {
    const { table, connection } = begin(60_000);
    table.remove(connection);
    table.endIdle(600_000);
    expect([connection.reason, table.size]).toEqual([undefined, 0]);
  });
});
