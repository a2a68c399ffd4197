# Takes a lock on a file, says "held", and holds it until standard input ends, or ends with 11 if the lock is taken.
#
#   perl lock.pl flock|record|description try|wait PATH [START LENGTH]
#
# flock: of an open file, the whole of it. record: POSIX's, of a process. description: a part of a file, of an open file (OFD).
use strict;
use warnings;

my ($kind, $how, $path, $start, $length) = (@ARGV, 0, 0);
open(my $file, '+<', $path) or die "$path: $!";
my $taken;
if ($kind eq 'flock') {
    $taken = flock($file, $how eq 'wait' ? 2 : 2 | 4);
} else {
    my %commands = (record => { try => 6, wait => 7 }, description => { try => 37, wait => 38 });
    # struct flock: exclusive, from the beginning of the file, and no process
    $taken = fcntl($file, $commands{$kind}{$how}, pack('s s x4 q q l x4', 1, 0, $start, $length, 0));
}
if (!$taken) {
    exit($! + 0);
}
$| = 1;
print "held\n";
<STDIN>;
