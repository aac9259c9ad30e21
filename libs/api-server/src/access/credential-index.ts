import type { CredentialRecord } from '@cloudless/api/store';
import type { ClusterState } from '@cloudless/cluster-state';

/** Finds the credential of a user by the serial number of one of its certificates. */
export class CredentialIndex {
  /** Id of the credential, by serial number. */
  private readonly idBySerial = new Map<string, string>();
  private readonly unsubscribe: () => void;

  constructor(private readonly state: ClusterState) {
    for (const { value } of state.view().credentials()) this.add(value);
    this.unsubscribe = state.subscribe((changes) => {
      for (const change of changes) {
        if (change.kind !== 'credential') continue;
        if (change.before !== undefined) this.remove(change.before);
        if (change.after !== undefined) this.add(change.after);
      }
    });
  }

  /** Returns the credential with a current or previous certificate of this serial number. */
  find(serial: string): CredentialRecord | undefined {
    const id = this.idBySerial.get(serial);
    return id === undefined ? undefined : this.state.view().credential(id)?.value;
  }

  close(): void {
    this.unsubscribe();
  }

  private add(record: CredentialRecord): void {
    for (const serial of listSerials(record))
      this.idBySerial.set(serial, record.credential?.id ?? '');
  }

  private remove(record: CredentialRecord): void {
    for (const serial of listSerials(record)) this.idBySerial.delete(serial);
  }
}

function listSerials({ current, previous }: CredentialRecord): readonly string[] {
  return [current?.serial ?? '', previous?.serial ?? ''].filter((serial) => serial !== '');
}
