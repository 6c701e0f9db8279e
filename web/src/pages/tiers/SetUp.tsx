/** Without a bucket: what one is for, and how to set it up. */

import { Command } from "../../components/Command";
import { Empty } from "../../components/Feedback";

const SETTINGS = `encryption = "on"
s3 = "s3://backups-berlin/holdfast"
s3_region = "eu-central-1"
# Not Amazon's:
# s3_endpoint = "https://minio.example:9000"
# s3_path_style = true`;

export function SetUp() {
  return (
    <Empty title="No bucket is configured">
      <p>
        With a bucket of an object store that speaks S3, everything is copied there soon after it is written: a second site, from which a lost server is
        made again. Backups and restores never wait for it. What leaves this machine is encrypted.
      </p>
      <p>In the configuration file of holdfast-server, and then restart it:</p>
      <Command text={SETTINGS} label="Settings" />
      <p>
        Then export a recovery kit with <code>holdfast-server key export-kit</code>, and keep it elsewhere: the bucket and the kit are all that a new
        machine needs. The manual has more, under <em>Copies in a bucket</em>.
      </p>
    </Empty>
  );
}
